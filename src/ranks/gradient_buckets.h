// SPDX-License-Identifier: MIT
// GradientBuckets: the flat gradient block in the parts in which processes that train together all-reduce it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/parameters.h"

namespace weft {

// Backward passes complete parameters from the last to the first. Parameters with weight decay lie in the
// order of their numbers, so that those that two marks (Ctx::mark) enclose are one range: a bucket is the
// shortest such range of at least `least` elements, or of as many as are left to come, for the last
// all-reduce has nothing to overlap with. Parameters without weight decay (biases, norms: small) and what
// lies before the first mark (embeddings) come last. `least` 0: all in one range, last. Of a store with
// shards(), a bucket is one or several of those, or what they leave out.
class GradientBuckets {
 public:
  // The store outlives it.
  GradientBuckets(const ParameterStore&, std::int64_t least);

  void begin();  // of a backward pass
  // All parameters numbered `first` and above are complete: what there is to reduce now; empty: nothing yet.
  GradientRange passed(std::int32_t first);
  // All are: the ranges that remain.
  std::vector<GradientRange> rest();  // neighbours as one

 private:
  const ParameterStore& store_;
  std::int64_t least_, from_ = 0;  // from_: what lies before it in the decayed part waits
};

}  // namespace weft
