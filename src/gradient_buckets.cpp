// SPDX-License-Identifier: MIT
// From marks to ranges.
#include "src/gradient_buckets.h"

#include <algorithm>

namespace weft {

GradientBuckets::GradientBuckets(std::span<const ParamInfo> params, std::int64_t size, std::int64_t least)
    : params_(params), size_(size), least_(least), decayed_(size) {
  for (const ParamInfo& p : params)
    if (!p.decay) decayed_ = std::min(decayed_, p.offset);
  begin();
}

void GradientBuckets::begin() { from_ = decayed_; }

GradientRange GradientBuckets::passed(std::int32_t first) {
  std::int64_t lowest = from_;
  for (auto i = static_cast<std::size_t>(first); i < params_.size(); ++i)
    if (params_[i].decay) lowest = std::min(lowest, params_[i].offset);
  const GradientRange range{lowest, from_};
  if (least_ == 0 || range.size() < std::min(least_, std::max<std::int64_t>(lowest, 1))) return {};
  from_ = lowest;
  return range;
}

std::vector<GradientRange> GradientBuckets::rest() {
  std::vector<GradientRange> ranges;
  if (from_ == decayed_) {
    ranges.push_back({0, size_});
  } else {
    for (const GradientRange range : {GradientRange{0, from_}, GradientRange{decayed_, size_}})
      if (range.size() > 0) ranges.push_back(range);
  }
  from_ = 0;
  return ranges;
}

}  // namespace weft
