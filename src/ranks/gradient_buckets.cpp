// SPDX-License-Identifier: MIT
#include "src/ranks/gradient_buckets.h"

namespace weft {

GradientRange GradientBuckets::passed(std::int32_t first) {
  const auto params = store_.params();
  std::int64_t lowest = from_;
  for (auto i = static_cast<std::size_t>(first); i < params.size(); ++i)
    if (params[i].decay) lowest = std::min(lowest, params[i].offset);
  if (!store_.shards().empty()) {
    const auto complete =
        std::ranges::find_if(store_.shards(), [&](const GradientRange& s) { return s.begin >= lowest; });
    lowest = complete == store_.shards().end() ? from_ : std::min(from_, complete->begin);
  }
  const GradientRange range{lowest, from_};
  if (!enough(range.size(), lowest, least_)) return {};
  from_ = lowest;
  return range;
}

std::vector<GradientRange> GradientBuckets::rest() {
  const std::int64_t decayed = store_.decayed(), size = store_.gradients().size();
  std::vector<GradientRange> ranges;
  if (from_ == decayed && store_.shards().empty()) {
    ranges.push_back({0, size});
  } else {
    for (const GradientRange range : {GradientRange{0, from_}, GradientRange{decayed, size}})
      if (range.size() > 0) ranges.push_back(range);
  }
  from_ = 0;
  return ranges;
}

}  // namespace weft
