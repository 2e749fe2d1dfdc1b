// SPDX-License-Identifier: MIT
// How results are compared: bit for bit, or by their largest error.
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

// |got - want| / |want|: the larger of the ratio of root mean squares and that of the largest
// elements. Infinite where one is NaN or infinite and the other is not the same.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double squares = 0, error_squares = 0, largest = 0, largest_error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) ? std::isnan(got[i]) : std::isinf(want[i]) && got[i] == want[i])
      continue;
    const double error = std::abs(got[i] - want[i]);
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    squares += want[i] * want[i];
    error_squares += error * error;
    largest = std::max(largest, std::abs(want[i]));
    largest_error = std::max(largest_error, error);
  }
  if (error_squares == 0) return 0;
  return std::max(std::sqrt(error_squares / squares), largest_error / largest);
}
}  // namespace weft
