// SPDX-License-Identifier: MIT
// What the CPU forms share. No result depends on the number of threads.
#pragma once

#include "kernels/view.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace weft {
// Loops over fewer elements than this stay on one thread.
inline constexpr int64_t kParallelElements = 1 << 14;
// Long sums and elementwise loops are cut into pieces of this many elements, whatever the number of
// threads.
inline constexpr int64_t kChunk = 1 << 12;

inline int64_t chunks_of(int64_t n) { return (n + kChunk - 1) / kChunk; }

// The sum of term(i) for i in [0, n), in sixteen accumulators that are added pairwise at the end.
template <class W, class Term>
inline W sum_of(int64_t n, Term term) {
  constexpr int kLanes = 16;
  W lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] += term(i + l);
  for (int64_t l = 0; l < n % kLanes; ++l) lane[l] += term(i + l);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

// The largest of term(i) for i in [0, n), n > 0.
template <class W, class Term>
inline W max_of(int64_t n, Term term) {
  constexpr int kLanes = 16;
  W lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = term(0);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const W v = term(i + l);
      lane[l] = v > lane[l] ? v : lane[l];
    }
  }
  for (int64_t l = 0; l < n % kLanes; ++l) lane[0] = term(i + l) > lane[0] ? term(i + l) : lane[0];
  return *std::max_element(lane, lane + kLanes);
}

template <class T>
inline wide_t<T> dot(const T* a, const T* b, int64_t n) {
  using W = wide_t<T>;
  return sum_of<W>(n, [=](int64_t i) { return static_cast<W>(a[i]) * static_cast<W>(b[i]); });
}

// Stores in out[c], or adds to it, the sum of term(n, c) over the rows n in order. Each thread
// takes a few neighbouring columns.
template <class W, class Term>
inline void sum_rows(const GradView& out, int64_t rows, int64_t cols, Term term) {
  constexpr int64_t kColumns = 64;
  W* to = out.view.as<W>();
#pragma omp parallel for schedule(static) if (rows * cols > kParallelElements)
  for (int64_t first = 0; first < cols; first += kColumns) {
    const int64_t count = std::min(kColumns, cols - first);
    W sum[kColumns] = {};
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t c = 0; c < count; ++c) sum[c] += term(n, first + c);
    for (int64_t c = 0; c < count; ++c) store(to, first + c, sum[c], out.accumulate);
  }
}

// A gradient whose elements are also needed before they are rounded: at() returns them.
template <class T>
class Kept {
 public:
  using W = wide_t<T>;

  Kept(const GradView& to, int64_t size)
      : to_(to ? to.view.as<T>() : nullptr),
        add_(to.accumulate) {
    if (!to_ || add_ || !std::is_same_v<T, W>) exact_.resize(static_cast<std::size_t>(size));
  }

  void put(int64_t i, W value) {
    if (to_) store(to_, i, value, add_);
    if (!exact_.empty()) exact_[static_cast<std::size_t>(i)] = value;
  }

  // The same for `count` neighbours.
  void put(int64_t first, const W* values, int64_t count) {
    for (int64_t i = 0; to_ && i < count; ++i) store(to_, first + i, values[i], add_);
    if (!exact_.empty()) std::copy(values, values + count, exact_.begin() + first);
  }

  W at(int64_t i) const {
    return exact_.empty() ? static_cast<W>(to_[i]) : exact_[static_cast<std::size_t>(i)];
  }

 private:
  T* to_;
  bool add_;
  std::vector<W> exact_;
};

inline double exp_of(double x) { return std::exp(x); }

// Cody-Waite reduction x = n log 2 + r and a polynomial of degree 7 for e^r: within 2 units in the
// last place, vectorised or not to the same bits. Below -87.3 (subnormal results) it is 0.
inline float exp_of(float x) {
  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  constexpr float kMagic = 12582912.0f;
  const float bounded = x > 88.8f ? 88.8f : x;
  const float shifted = bounded * 1.44269504f + kMagic;
  const float n = shifted - kMagic;
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors: n may be 128.
  const uint32_t k = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kMagic);
  const float two_to_n = std::bit_cast<float>((k - 1 + 127) << 23);
  return x < -87.3f ? 0.0f : p * two_to_n * 2.0f;
}
}  // namespace weft
