// SPDX-License-Identifier: MIT
// GradientBuckets: the flat gradient block in the parts in which processes that train together sum it up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/parameters.h"

namespace weft {

struct GradientRange {  // elements of the flat gradient block
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const GradientRange&) const = default;
};

// Backward passes complete parameters from the last to the first. Parameters with weight decay lie in the
// order of their numbers, so that those that two marks (Ctx::mark) enclose are one range: a bucket is the
// shortest such range of at least `least` elements, or of as many as are left to come, for what is summed up
// last has nothing to hide behind. Parameters without weight decay (biases, norms: small) and what lies
// before the first mark (embeddings) come last. `least` 0: all in one range, last.
class GradientBuckets {
 public:
  // Of a store whose blocks have `size` elements.
  GradientBuckets(std::span<const ParamInfo>, std::int64_t size, std::int64_t least);

  void begin();  // of a backward pass
  // All parameters numbered `first` and above are complete: what there is to sum up now; empty: nothing yet.
  GradientRange passed(std::int32_t first);
  // All are: the ranges that remain.
  std::vector<GradientRange> rest();  // neighbours as one

 private:
  std::span<const ParamInfo> params_;
  std::int64_t size_, least_, decayed_ = 0,
                              from_ = 0;  // from_: what lies before it in the decayed part waits
};

}  // namespace weft
