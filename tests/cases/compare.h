// SPDX-License-Identifier: MIT
// How results are compared: bit for bit, or by their largest error. relative_error() of whole
// tensors is in train/bench/check.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

namespace weft {
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Largest |a - b| over the largest |b| (or 1); infinite where one is NaN or infinite and the other
// not.
template <class A, class B>
double difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0, top = 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (x == y) continue;
    const double gap = std::abs(x - y);
    worst = std::isfinite(gap) ? std::max(worst, gap) : std::numeric_limits<double>::infinity();
    top = std::max(top, std::abs(y));
  }
  return worst / top;
}
}  // namespace weft
