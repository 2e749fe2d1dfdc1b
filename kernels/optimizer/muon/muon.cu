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

// Matrix z of row y of `out` = that of x / (its norm + 1e-7).
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
  const auto factor = static_cast<float>(1.0 / (sqrt(sum) + NewtonSchulz::kLeast));
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
  Gemm polynomial(const MuonMatrix& m, int64_t square, int64_t count) const {
    Gemm p = of(m.side(), m.side(), m.side(), count);
    p.a = p.b = p.addend = at(k_.squares, square),
    p.out = at(k_.squares, k_.square_elements() + square);
    p.transpose_a = true;
    p.alpha = static_cast<float>(NewtonSchulz::kC), p.beta = static_cast<float>(NewtonSchulz::kB);
    p.stride_a = p.stride_b = p.stride_out = m.square();
    return p;
  }

  // scale (a X + B X) for R <= C, else scale (a X + X B).
  Gemm product(const TensorView& out, const TensorView& x, const MuonMatrix& m, int64_t square,
               double scale) const {
    const bool wide = m.rows <= m.cols;
    Gemm p = of(m.cols, m.rows, m.side(), n_);
    p.a = at(x, m.offset), p.b = at(k_.squares, k_.square_elements() + square);
    p.stride_a = k_.x.cols(), p.stride_b = m.square();
    if (!wide) std::swap(p.a, p.b), std::swap(p.stride_a, p.stride_b);
    p.addend = at(x, m.offset), p.out = at(out, m.offset), p.stride_out = k_.x.cols();
    p.alpha = static_cast<float>(scale), p.beta = static_cast<float>(scale * NewtonSchulz::kA);
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
             bool last) {
  const Products products(k);
  const int64_t n = k.x.rows();
  int64_t square = 0, begun = 0;  // begun: where matrices of the same side begin
  for (std::size_t i = 0; i < k.matrices.size(); ++i) {
    const MuonMatrix& m = k.matrices[i];
    require_multiply(q, products.gram(x, m, square), NewtonSchulz::kName);
    square += n * m.square();
    if (i + 1 < k.matrices.size() && k.matrices[i + 1].side() == m.side()) continue;
    require_multiply(q, products.polynomial(m, begun, (square - begun) / m.square()),
                     NewtonSchulz::kName);
    begun = square;
  }
  square = 0;
  for (const MuonMatrix& m : k.matrices) {
    const double scale = last ? m.scale() : 1;
    require_multiply(q, products.product(out, x, m, square, scale), NewtonSchulz::kName);
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
  for (int step = 1; step <= NewtonSchulz::kSteps; ++step) {
    iterate(q, k, to, from, step == NewtonSchulz::kSteps);
    std::swap(from, to);
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
