// SPDX-License-Identifier: MIT
// Muon on CUDA. A step of Newton-Schulz is three kinds of batched GEMMs through cuBLASLt, whose
// epilogues add and scale; A is symmetric, so that no matrix is transposed. The rest is bound by
// memory bandwidth.
#include "kernels/linear/matmul.cuh"
#include "kernels/optimizer/muon/muon.h"
#include "kernels/optimizer/weights.cuh"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace weft {
namespace {
constexpr int kThreads = 256, kGroup = 4;
constexpr int kNormGroup = 8, kNormBlocks = 32;  // blocks that add up the squares of a matrix

template <class T>
__global__ void __launch_bounds__(kThreads)
    update_momentum(T* u, float* m, const float* gradients, const StepScalars* step,
                    const StepResults* results, int64_t size, bool packed) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (first >= size) return;
  const int64_t count = size - first;
  const float scale = results->update_scale, kept = step->momentum, rest = 1.0f - kept;
  float out[kGroup] = {};
  if (scale != 0.0f) {
    float mean[kGroup], g[kGroup];
    load(mean, m + first, count, packed);
    load(g, gradients + first, count, packed);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      g[i] *= scale;
      mean[i] = kept * mean[i] + rest * g[i];
      out[i] = kept * mean[i] + rest * g[i];
    }
    store(m + first, mean, count, packed);
  }
  store(u + first, out, count, packed);
}

// Matrices of a launch: where they lie in a row of x.
struct Places {
  static constexpr int kMost = 8;
  int64_t offset[kMost], size[kMost];
};

// partial[z][y][x] = what block (x, y, z) adds up of |matrix z of row y|^2.
template <class T>
__global__ void __launch_bounds__(kThreads)
    partial_squares(double* partial, const T* x, int64_t stride,
                    const __grid_constant__ Places places, bool packed) {
  x += blockIdx.y * stride + places.offset[blockIdx.z];
  const int64_t size = places.size[blockIdx.z];
  double sum = 0;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kNormGroup;
       i < size; i += static_cast<int64_t>(kNormBlocks) * kThreads * kNormGroup) {
    float v[kNormGroup];
    load(v, x + i, size - i, packed);
#pragma unroll
    for (int j = 0; j < kNormGroup; ++j) sum += static_cast<double>(v[j]) * v[j];
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0)
    partial[(blockIdx.z * gridDim.y + blockIdx.y) * kNormBlocks + blockIdx.x] = sum;
}

// Matrix z of row y of `out` = that of x / (1.01 times its norm + 1e-7).
template <class T>
__global__ void __launch_bounds__(kThreads)
    normalise(T* out, const T* x, const double* partial, int64_t stride,
              const __grid_constant__ Places places, bool packed) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kNormGroup,
                size = places.size[blockIdx.z];
  if (first >= size) return;
  partial += (blockIdx.z * gridDim.y + blockIdx.y) * kNormBlocks;
  double sum = 0;
  for (int i = 0; i < kNormBlocks; ++i) sum += partial[i];
  const auto factor =
      static_cast<float>(1.0 / (NewtonSchulz::kSafety * sqrt(sum) + NewtonSchulz::kLeast));
  const int64_t at = blockIdx.y * stride + places.offset[blockIdx.z] + first;
  float v[kNormGroup];
  load(v, x + at, size - first, packed);
#pragma unroll
  for (float& value : v) value *= factor;
  store(out + at, v, size - first, packed);
}

// Up to Places::kMost matrices of every row.
void normalise_some(CudaQueue& q, const NewtonSchulz& k, std::span<const MuonMatrix> matrices) {
  const int64_t n = k.x.rows(), stride = k.x.cols();
  Places places{};
  int64_t largest = 0;
  bool packed = aligned16(k.x, k.other) && stride % kNormGroup == 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    places.offset[i] = matrices[i].offset, places.size[i] = matrices[i].rows * matrices[i].cols;
    largest = std::max(largest, places.size[i]);
    packed = packed && places.offset[i] % kNormGroup == 0;
  }
  const auto rows = static_cast<unsigned>(n), count = static_cast<unsigned>(matrices.size());
  std::size_t offset = 0;
  auto* partial = take_workspace<double>(q, offset, n * kNormBlocks * count, NewtonSchulz::kName);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    partial_squares<<<dim3(kNormBlocks, rows, count), kThreads, 0, q.stream>>>(
        partial, k.x.as<T>(), stride, places, packed);
    normalise<<<dim3(blocks_for(largest, kThreads * kNormGroup), rows, count), kThreads, 0,
                q.stream>>>(k.other.as<T>(), k.x.as<T>(), partial, stride, places, packed);
  });
}

template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    subtract(const Weights<C> weights, const T* directions, const StepResults* results,
             int64_t size, float weight_decay, bool packed) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (first >= size || results->update_scale == 0.0f) return;
  const int64_t count = size - first;
  float p[kGroup], o[kGroup];
  load(p, weights.master + first, count, packed);
  load(o, directions + first, count, packed);
  const float rate = weights.step->matrix_learning_rate;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) p[i] -= rate * (o[i] + weight_decay * p[i]);
  weights.put(first, p, count, packed);
}

// ---- NormaliseRows ----

constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 4 * kWarps;  // that a block scales

// Matrices of a launch, and what it knows of row i of matrix z of row y of x, at
// (z gridDim.y + y) most + i.
struct RowsOf {
  MuonMatrix matrix[Places::kMost];
  int64_t moment[Places::kMost];  // where v of a matrix begins in a row of v
  int64_t stride, moment_stride;  // of x and v
  int most;                       // rows of a matrix
  float *squares, *factor;
};

// The sum of the squares of each row, v and 1 / its root: a warp a row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    measure_rows(const T* x, float* v, const __grid_constant__ RowsOf of,
                 const StepResults* results, bool packed) {
  const MuonMatrix& m = of.matrix[blockIdx.z];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= m.rows || results->update_scale == 0.0f) return;
  x += blockIdx.y * of.stride + m.offset + row * m.cols;
  v += blockIdx.y * of.moment_stride + of.moment[blockIdx.z] + row;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
  for (int64_t i = lane * kNormGroup; i < m.cols; i += kWarp * kNormGroup) {
    float o[kNormGroup];
    load(o, x + i, m.cols - i, packed);
#pragma unroll
    for (const float value : o) sum = fmaf(value, value, sum);
  }
  sum = warp_sum(sum);
  if (lane != 0) return;
  constexpr auto kept = static_cast<float>(NormaliseRows::kBeta2);
  const float mean = kept * *v + (1.0f - kept) * (sum / static_cast<float>(m.cols));
  *v = mean;
  const int64_t at = static_cast<int64_t>(blockIdx.z * gridDim.y + blockIdx.y) * of.most + row;
  of.squares[at] = sum;
  of.factor[at] = 1.0f / (sqrtf(mean) + static_cast<float>(NormaliseRows::kLeast));
}

// kRows rows a block. Each block adds up both norms of its matrix.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_rows(T* x, const __grid_constant__ RowsOf of, const StepResults* results, bool packed) {
  const MuonMatrix& m = of.matrix[blockIdx.z];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kRows;
  if (begin >= m.rows || results->update_scale == 0.0f) return;
  const int64_t at = static_cast<int64_t>(blockIdx.z * gridDim.y + blockIdx.y) * of.most;
  const float *squares = of.squares + at, *factor = of.factor + at;
  double before = 0, after = 0;
  for (int64_t r = threadIdx.x; r < m.rows; r += kThreads) {
    const double square = squares[r], f = factor[r];
    before += square, after += f * f * square;
  }
  before = block_sum<kThreads>(before);
  after = block_sum<kThreads>(after);
  const float scale = after > 0 ? static_cast<float>(sqrt(before / after)) : 0.0f;
  x += blockIdx.y * of.stride + m.offset;
  const int64_t end = min(begin + kRows, m.rows);
  for (int64_t row = begin + threadIdx.x / kWarp; row < end; row += kWarps) {
    const float by = scale * factor[row];
    T* const to = x + row * m.cols;
    for (int64_t i = (threadIdx.x % kWarp) * kNormGroup; i < m.cols; i += kWarp * kNormGroup) {
      float o[kNormGroup];
      load(o, to + i, m.cols - i, packed);
#pragma unroll
      for (float& value : o) value *= by;
      store(to + i, o, m.cols - i, packed);
    }
  }
}

// Up to Places::kMost matrices of every row, and where their v begins.
void normalise_rows_of(CudaQueue& q, const NormaliseRows& k, std::span<const MuonMatrix> matrices,
                       std::span<const int64_t> moments) {
  RowsOf of{};
  of.stride = k.x.cols(), of.moment_stride = k.v.cols();
  bool packed = aligned16(k.x) && of.stride % kNormGroup == 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const MuonMatrix& m = of.matrix[i] = matrices[i];
    of.moment[i] = moments[i];
    of.most = std::max(of.most, static_cast<int>(m.rows));
    packed = packed && m.offset % kNormGroup == 0 && m.cols % kNormGroup == 0;
  }
  const auto rows = static_cast<unsigned>(k.x.rows()),
             count = static_cast<unsigned>(matrices.size());
  std::size_t offset = 0;
  const int64_t all = k.x.rows() * static_cast<int64_t>(count) * of.most;
  of.squares = take_workspace<float>(q, offset, all, NormaliseRows::kName);
  of.factor = take_workspace<float>(q, offset, all, NormaliseRows::kName);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    measure_rows<<<dim3(blocks_for(of.most, kWarps), rows, count), kThreads, 0, q.stream>>>(
        k.x.as<T>(), k.v.as<float>(), of, k.results, packed);
    scale_rows<<<dim3(blocks_for(of.most, kRows), rows, count), kThreads, 0, q.stream>>>(
        k.x.as<T>(), of, k.results, packed);
  });
}

// A thread a row of matrix z of row y. `part`: `size` elements from `begin` on.
__global__ void __launch_bounds__(kThreads)
    move_rows(float* part, float* dense, const __grid_constant__ RowsOf of, int64_t begin,
              int64_t size, bool back) {
  const MuonMatrix& m = of.matrix[blockIdx.z];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                at = blockIdx.y * of.stride + m.offset + row - begin;
  if (row >= m.rows || at < 0 || at >= size) return;
  dense += blockIdx.y * of.moment_stride + of.moment[blockIdx.z] + row;
  if (back)
    part[at] = *dense;
  else
    *dense = part[at];
}

// GEMMs of all matrices at one offset, in cuBLASLt's column-major terms: (R, C) is (C, R) to it.
class Products {
 public:
  explicit Products(const NewtonSchulz& k)
      : k_(k),
        n_(k.x.rows()) {}

  // A = X X^T for R <= C, else X^T X.
  Gemm gram(const TensorView& x, const MuonMatrix& m, int64_t square) const {
    const bool wide = m.rows <= m.cols;
    Gemm p = of(m.side(), m.side(), wide ? m.cols : m.rows, n_);
    p.a = p.b = at(x, m.offset), p.out = at(k_.squares, square);
    p.transpose_a = wide, p.transpose_b = !wide;
    p.stride_a = p.stride_b = k_.x.cols(), p.stride_out = m.square();
    return p;
  }

  // b A + c A^2 of `count` matrices with this side.
  Gemm polynomial(const MuonMatrix& m, int64_t square, int64_t count, const Quintic& by) const {
    Gemm p = of(m.side(), m.side(), m.side(), count);
    p.a = p.b = p.addend = at(k_.squares, square),
    p.out = at(k_.squares, k_.square_elements() + square);
    p.transpose_a = true;
    p.alpha = static_cast<float>(by.c), p.beta = static_cast<float>(by.b);
    p.stride_a = p.stride_b = p.stride_out = m.square();
    return p;
  }

  // scale (a X + B X) for R <= C, else scale (a X + X B).
  Gemm product(const TensorView& out, const TensorView& x, const MuonMatrix& m, int64_t square,
               const Quintic& by, double scale) const {
    const bool wide = m.rows <= m.cols;
    Gemm p = of(m.cols, m.rows, m.side(), n_);
    p.a = at(x, m.offset), p.b = at(k_.squares, k_.square_elements() + square);
    p.stride_a = k_.x.cols(), p.stride_b = m.square();
    if (!wide) std::swap(p.a, p.b), std::swap(p.stride_a, p.stride_b);
    p.addend = at(x, m.offset), p.out = at(out, m.offset), p.stride_out = k_.x.cols();
    p.alpha = static_cast<float>(scale), p.beta = static_cast<float>(scale * by.a);
    return p;
  }

 private:
  static char* at(const TensorView& t, int64_t element) {
    return static_cast<char*>(t.data) + element * size_of(t.dtype);
  }

  Gemm of(int64_t rows, int64_t cols, int64_t inner, int64_t batch) const {
    Gemm p;
    p.rows = rows, p.cols = cols, p.inner = inner, p.batch = batch;
    p.in = p.to = k_.x.dtype;
    return p;
  }

  const NewtonSchulz& k_;
  int64_t n_;
};

// From x to out, by way of the squares.
void iterate(CudaQueue& q, const NewtonSchulz& k, const TensorView& out, const TensorView& x,
             int step) {
  const Products products(k);
  const Quintic& by = NewtonSchulz::kPolynomials[step];
  const int64_t n = k.x.rows();
  int64_t square = 0, begun = 0;  // begun: where matrices of the same side begin
  for (std::size_t i = 0; i < k.matrices.size(); ++i) {
    const MuonMatrix& m = k.matrices[i];
    require_multiply(q, products.gram(x, m, square), NewtonSchulz::kName);
    square += n * m.square();
    if (i + 1 < k.matrices.size() && k.matrices[i + 1].side() == m.side()) continue;
    require_multiply(q, products.polynomial(m, begun, (square - begun) / m.square(), by),
                     NewtonSchulz::kName);
    begun = square;
  }
  square = 0;
  for (const MuonMatrix& m : k.matrices) {
    const double scale = step == NewtonSchulz::kSteps - 1 ? m.scale() : 1;
    require_multiply(q, products.product(out, x, m, square, by, scale), NewtonSchulz::kName);
    square += n * m.square();
  }
}
}  // namespace

void compute(CudaQueue& q, const MuonMomentum& k) {
  const int64_t n = k.u.size();
  if (n == 0) return;
  dispatch_cuda(k.u.dtype, [&]<class T>() {
    update_momentum<<<blocks_for(n, kThreads * kGroup), kThreads, 0, q.stream>>>(
        k.u.as<T>(), k.m.as<float>(), k.gradients.as<float>(), k.step, k.results, n,
        aligned16(k.u, k.m, k.gradients));
  });
}

void compute(CudaQueue& q, const NewtonSchulz& k) {
  if (k.x.size() == 0) return;
  for (std::span<const MuonMatrix> rest = k.matrices; !rest.empty();) {
    const std::size_t count = std::min<std::size_t>(rest.size(), Places::kMost);
    normalise_some(q, k, rest.first(count));
    rest = rest.subspan(count);
  }
  TensorView from = k.other, to = k.x;
  for (int step = 0; step < NewtonSchulz::kSteps; ++step) {
    iterate(q, k, to, from, step);
    std::swap(from, to);
  }
}

void compute(CudaQueue& q, const NormaliseRows& k) {
  if (k.x.size() == 0) return;
  for (std::size_t i = 0; i < k.matrices.size(); i += Places::kMost) {
    const std::size_t count = std::min<std::size_t>(k.matrices.size() - i, Places::kMost);
    normalise_rows_of(q, k, std::span(k.matrices).subspan(i, count),
                      std::span(k.moments).subspan(i, count));
  }
}

void compute(CudaQueue& q, const MoveMoments& k) {
  if (k.part.size() == 0 || k.dense.size() == 0) return;
  RowsOf of{};
  of.stride = k.period, of.moment_stride = k.dense.cols();
  int64_t moment = 0;
  for (std::size_t i = 0; i < k.matrices.size();) {
    of.most = 0;
    unsigned count = 0;
    for (; i < k.matrices.size() && count < Places::kMost; ++i, ++count) {
      of.matrix[count] = k.matrices[i], of.moment[count] = moment;
      moment += k.matrices[i].rows;
      of.most = std::max(of.most, static_cast<int>(k.matrices[i].rows));
    }
    move_rows<<<dim3(blocks_for(of.most, kThreads), static_cast<unsigned>(k.dense.rows()), count),
                kThreads, 0, q.stream>>>(k.part.as<float>(), k.dense.as<float>(), of, k.begin,
                                         k.part.size(), k.back);
  }
}

void compute(CudaQueue& q, const MuonUpdate& k) {
  const int64_t n = k.master.size();
  if (n == 0) return;
  const bool packed = aligned16(k.master, k.ema, k.compute, k.o);
  dispatch_cuda(k.o.dtype, [&]<class T>() {
    dispatch_cuda(k.compute ? k.compute.dtype : DType::f32, [&]<class C>() {
      const Weights<C> weights = {k.master.as<float>(), k.ema.or_null<float>(),
                                  k.compute.or_null<C>(), k.step};
      subtract<<<blocks_for(n, kThreads * kGroup), kThreads, 0, q.stream>>>(
          weights, k.o.as<T>(), k.results, n, static_cast<float>(k.weight_decay), packed);
    });
  });
}
}  // namespace weft
