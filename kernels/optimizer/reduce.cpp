// SPDX-License-Identifier: MIT
// Sums over whole tensors: the definitions. SquareSum adds in SumOrder, the others pieces of kChunk
// elements.
#include "kernels/optimizer/reduce.h"

#include "kernels/cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
// sum of term(i) for i in [0, n), the same for any number of threads.
template <class Term>
double sum_in_pieces(int64_t n, Term term) {
  std::vector<double> partial(static_cast<std::size_t>(chunks_of(n)));
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (int64_t p = 0; p < chunks_of(n); ++p) {
    const int64_t begin = p * kChunk, count = std::min(kChunk, n - begin);
    partial[static_cast<std::size_t>(p)] =
        sum_of<double>(count, [=](int64_t i) { return static_cast<double>(term(begin + i)); });
  }
  double sum = 0;
  for (const double p : partial) sum += p;
  return sum;
}

double sum_of_squares(const TensorView& x) {
  double squares = 0;
  dispatch_float(x.dtype, [&]<class T>() {
    const T* values = x.as<T>();
    squares = sum_in_pieces(x.size(), [=](int64_t i) {
      const double v = static_cast<double>(values[i]);
      return v * v;
    });
  });
  return squares;
}

void expect_wide(const TensorView& x, const char* what) {
  expect_floating(x, what);
  WEFT_CHECK(x.dtype == wide(x.dtype), what, " must be f32 or f64, got ", name_of(x.dtype));
}

using Lanes = std::array<double, SumOrder::kLanes>;

// The sum of the lanes of a block, in SumOrder.
double sum_of_lanes(Lanes lane) {
  double sum = 0;
  for (int warp = 0; warp < SumOrder::kLanes; warp += SumOrder::kWarp) {
    for (int half = SumOrder::kWarp / 2; half > 0; half /= 2)
      for (int l = warp; l < warp + half; ++l) lane[l] += lane[l + half];
    sum += lane[warp];
  }
  return sum;
}

// Adds to each lane of a block its terms of sum x^2.
void add_squares(Lanes& lane, const TensorView& x, int64_t block) {
  constexpr int64_t of_block = SumOrder::kTurn / SumOrder::kBlocks;
  dispatch_float(x.dtype, [&]<class T>() {
    const T* values = x.as<T>();
    for (int64_t i = block * of_block; i < x.size(); i += SumOrder::kTurn) {
      const int64_t count = std::min(of_block, x.size() - i);
      for (int64_t j = 0; j < count; ++j) {
        const double v = static_cast<double>(values[i + j]);
        lane[static_cast<std::size_t>(j / SumOrder::kGroup)] += v * v;
      }
    }
  });
}

template <class T>
void mean_backward(const MeanBackward& k) {
  using W = wide_t<T>;
  const int64_t n = k.dx.view.size();
  const W dy = k.dy ? k.dy.as<W>()[0] : static_cast<W>(k.step->loss_gradient);
  const W value = dy / static_cast<W>(n);
  T* dx = k.dx.view.as<T>();
  for (int64_t i = 0; i < n; ++i) store(dx, i, value, k.dx.accumulate);
}
}  // namespace

void check(const MeanForward& k) {
  expect_wide(k.x, "mean_forward: x");
  WEFT_CHECK(k.x.size() > 0, "mean_forward: x has no elements");
  expect_size(k.y, k.x.dtype, 1, "mean_forward: y");
}

void check(const MeanBackward& k) {
  expect_wide(k.dx.view, "mean_backward: dx");
  expect_size(k.dx.view, k.dx.view.dtype, k.dx.view.size(), "mean_backward: dx");
  if (k.dy) expect_size(k.dy, k.dx.view.dtype, 1, "mean_backward: dy");
  WEFT_CHECK(k.dy || k.step, "mean_backward: without dy it needs StepScalars");
}

void check(const SquareSum& k) {
  WEFT_CHECK(k.xs.size() <= SquareSum::kMost, "square_sum: takes ", SquareSum::kMost,
             " tensors, got ", k.xs.size());
  for (const TensorView& x : k.xs) expect_wide(x, "square_sum: x");
  expect_size(k.y, DType::f64, 1, "square_sum: y");
}

void check(const ClipCoefficient& k) {
  WEFT_CHECK(static_cast<bool>(k.gradients) != static_cast<bool>(k.squares),
             "clip_coefficient: takes gradients or sums of their squares");
  if (k.squares) expect_size(k.squares, DType::f64, k.squares.size(), "clip_coefficient: squares");
  if (k.gradients) expect_wide(k.gradients, "clip_coefficient: gradients");
  WEFT_CHECK(k.results && k.step, "clip_coefficient: needs StepResults and StepScalars");
  WEFT_CHECK(k.clip >= 0, "clip_coefficient: clip must not be negative, got ", k.clip);
}

void check(const Fingerprint& k) {
  WEFT_CHECK(k.sum && k.x, "fingerprint: needs a sum and a tensor");
  WEFT_CHECK(k.first >= 0, "fingerprint: the place of the first element is ", k.first);
}

void compute(CpuQueue&, const MeanForward& k) {
  dispatch_float(k.x.dtype, [&]<class T>() {
    const T* x = k.x.as<T>();
    const double mean = sum_in_pieces(k.x.size(), [=](int64_t i) { return x[i]; }) /
                        static_cast<double>(k.x.size());
    *static_cast<T*>(k.y.data) = static_cast<T>(mean);
    if (k.results) k.results->loss = static_cast<float>(mean);
  });
}

void compute(CpuQueue&, const MeanBackward& k) {
  dispatch_float(k.dx.view.dtype, [&]<class T>() { mean_backward<T>(k); });
}

void compute(CpuQueue&, const SquareSum& k) {
  std::array<double, SumOrder::kBlocks> of_block;
#pragma omp parallel for schedule(static)
  for (int block = 0; block < SumOrder::kBlocks; ++block) {
    Lanes lane = {};
    for (const TensorView& x : k.xs) add_squares(lane, x, block);
    of_block[static_cast<std::size_t>(block)] = sum_of_lanes(lane);
  }
  Lanes total = {};
  for (std::size_t block = 0; block < of_block.size(); ++block)
    total[block % total.size()] += of_block[block];
  *k.y.as<double>() = sum_of_lanes(total);
}

void compute(CpuQueue&, const ClipCoefficient& k) {
  double squares = k.gradients ? sum_of_squares(k.gradients) : 0;
  for (int64_t i = 0; k.squares && i < k.squares.size(); ++i) squares += k.squares.as<double>()[i];
  const double scale = k.step->gradient_scale;
  const float norm = static_cast<float>(scale * std::sqrt(squares));
  double update = scale;
  if (k.clip > 0 && norm > k.clip) update = scale * k.clip / norm;
  k.results->gradient_norm = norm;
  k.results->update_scale = std::isfinite(norm) ? static_cast<float>(update) : 0.0f;
}

void compute(CpuQueue&, const Fingerprint& k) {
  const int64_t n = k.x.size();
  uint64_t sum = 0;
  dispatch_bits(k.x.dtype, [&]<class T>() {
    const T* x = static_cast<const T*>(k.x.data);
#pragma omp parallel for schedule(static) reduction(+ : sum) if (n > kParallelElements)
    for (int64_t i = 0; i < n; ++i)
      sum += Fingerprint::hash(x[i], static_cast<uint64_t>(k.first + i));
  });
  *k.sum += sum;
}
}  // namespace weft
