// SPDX-License-Identifier: MIT
// GradientBuckets: the flat gradient block in the parts in which processes that train together all-reduce it.
#pragma once

#include "src/parameters.h"

namespace weft {

// Backward passes complete parameters from last to first. Decayed parameters lie in order, so those between
// two marks (Ctx::mark) are one range. A bucket is the shortest such range of `least` elements, or of as many
// as are left to come. Undecayed parameters and those before the first mark come last. `least` 0: one range,
// last. With shards(), a bucket is whole shards, or what they leave out.
class GradientBuckets {
 public:
  // The store outlives it.
  GradientBuckets(const ParameterStore& store, std::int64_t least) : store_(store), least_(least) { begin(); }

  void begin() { from_ = store_.decayed(); }  // of a backward pass
  // All parameters numbered `first` and above are complete: what there is to reduce now; empty: nothing yet.
  GradientRange passed(std::int32_t first);
  // All are: the ranges that remain.
  std::vector<GradientRange> rest();  // neighbours as one

 private:
  const ParameterStore& store_;
  std::int64_t least_, from_ = 0;  // from_: what lies before it in the decayed part waits
};

}  // namespace weft
