// SPDX-License-Identifier: MIT
#include "kernels/diagnostics/pace.h"

#include "kernels/view.h"

#include <algorithm>
#include <string>

namespace weft {
RankState Pace::state() const {
  constexpr int kTimesForOtherWork = 10, kTimesLongestPause = 3;
  RankState state = known;
  state.quiet = since(last);
  const int times = steps < 2 ? kTimesForOtherWork : 1;
  if (limit.count() > 0) state.allowed = std::max(limit * times, longest * kTimesLongestPause);
  return state;
}

std::string seconds_text(std::chrono::milliseconds time) {
  return str(static_cast<double>(time.count()) / 1000, " s");
}

std::string after_step(int64_t step) {
  return step < 0 ? std::string("before its first step") : str("after step ", step);
}
}  // namespace weft
