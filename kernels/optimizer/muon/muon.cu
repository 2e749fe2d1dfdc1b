// SPDX-License-Identifier: MIT
// Muon on CUDA. Newton-Schulz is batched GEMMs through cuBLASLt: in a part two with X for each
// matrix, and squares times squares, one for neighbours of one side. The rest is bound by memory
// bandwidth.
#include "kernels/linear/matmul.cuh"
#include "kernels/optimizer/muon/muon.h"
#include "kernels/optimizer/weights.cuh"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

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

// Divides matrix z of row y of x by its norm + 1e-7.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normalise(T* x, const double* partial, int64_t stride, const __grid_constant__ Places places,
              bool packed) {
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
  store(x + at, v, size - first, packed);
}

// Up to Places::kMost matrices of every row.
void normalise_some(CudaQueue& q, const NewtonSchulz& k, std::span<const MuonMatrix> matrices) {
  const int64_t n = k.x.rows(), stride = k.x.cols();
  Places places{};
  int64_t largest = 0;
  bool packed = aligned16(k.x) && stride % kNormGroup == 0;
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
                q.stream>>>(k.x.as<T>(), partial, stride, places, packed);
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

// The diagonals of `count` squares, one each `stride` elements, plus `value`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_to_diagonal(T* squares, int64_t count, int64_t side, int64_t stride, float value) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count * side) return;
  T& x = squares[i / side * stride + i % side * (side + 1)];
  x = from_float<T>(to_float(x) + value);
}

// Matrices of the same side, one after the other: where their squares begin in a set.
struct Group {
  int64_t begin, side, stride, count;
};

// The GEMMs, in cuBLASLt's column-major terms: (R, C) is (C, R) to it. Squares are symmetric up to
// rounding. They lie in sets, which hold one of every matrix.
class Products {
 public:
  Products(CudaQueue& q, const NewtonSchulz& k)
      : q_(q),
        k_(k) {
    int64_t begin = 0;
    for (const MuonMatrix& m : k.matrices) {
      const int64_t n = k.x.rows();
      if (groups_.empty() || groups_.back().side != m.side())
        groups_.push_back({begin, m.side(), m.square(), 0});
      groups_.back().count += n;
      begin += n * m.square();
    }
  }

  // Set `out` = X X^T for R <= C, else X^T X.
  void gram(int out, const TensorView& x) const {
    int64_t square = 0;
    for (const MuonMatrix& m : k_.matrices) {
      const bool wide = m.rows <= m.cols;
      Gemm p = of(m.side(), m.side(), wide ? m.cols : m.rows, k_.x.rows());
      p.a = p.b = at(x, m.offset), p.out = square_at(out, square);
      p.transpose_a = wide, p.transpose_b = !wide;
      p.stride_a = p.stride_b = k_.x.cols(), p.stride_out = m.square();
      multiply(p);
      square += k_.x.rows() * m.square();
    }
  }

  // Set `out` = a I + b A + c A^2.
  void polynomial(int out, int a) const {
    const CudaQueue& queue = q_;
    for (const Group& g : groups_) {
      Gemm p = of_squares(g, out, a, a);
      p.addend = p.a;
      p.alpha = static_cast<float>(NewtonSchulz::kC), p.beta = static_cast<float>(NewtonSchulz::kB);
      multiply(p);
      dispatch_cuda(k_.x.dtype, [&]<class T>() {
        add_to_diagonal<<<blocks_for(g.count * g.side, kThreads), kThreads, 0, queue.stream>>>(
            reinterpret_cast<T*>(p.out), g.count, g.side, g.stride,
            static_cast<float>(NewtonSchulz::kA));
      });
    }
  }

  // Set `out` = the product of two sets.
  void product(int out, int a, int b) const {
    for (const Group& g : groups_) multiply(of_squares(g, out, a, b));
  }

  // T X for R <= C, else X T; the last ones times the scale of their matrix.
  void apply(const TensorView& out, int t, const TensorView& x, bool last) const {
    int64_t square = 0;
    for (const MuonMatrix& m : k_.matrices) {
      Gemm p = of(m.cols, m.rows, m.side(), k_.x.rows());
      p.a = at(x, m.offset), p.b = square_at(t, square);
      p.stride_a = k_.x.cols(), p.stride_b = m.square();
      if (m.rows > m.cols) std::swap(p.a, p.b), std::swap(p.stride_a, p.stride_b);
      p.out = at(out, m.offset), p.stride_out = k_.x.cols();
      if (last) p.alpha = static_cast<float>(m.scale());
      multiply(p);
      square += k_.x.rows() * m.square();
    }
  }

 private:
  static char* at(const TensorView& t, int64_t element) {
    return static_cast<char*>(t.data) + element * size_of(t.dtype);
  }

  char* square_at(int set, int64_t element) const {
    return at(k_.squares, set * k_.square_elements() + element);
  }

  Gemm of(int64_t rows, int64_t cols, int64_t inner, int64_t batch) const {
    Gemm p;
    p.rows = rows, p.cols = cols, p.inner = inner, p.batch = batch;
    p.in = p.to = k_.x.dtype;
    return p;
  }

  Gemm of_squares(const Group& g, int out, int a, int b) const {
    Gemm p = of(g.side, g.side, g.side, g.count);
    p.a = square_at(a, g.begin), p.b = square_at(b, g.begin), p.out = square_at(out, g.begin);
    p.stride_a = p.stride_b = p.stride_out = g.stride;
    return p;
  }

  void multiply(const Gemm& p) const { require_multiply(q_, p, NewtonSchulz::kName); }

  CudaQueue& q_;
  const NewtonSchulz& k_;
  std::vector<Group> groups_;
};

// A set of squares that is not in use.
int unused(std::initializer_list<int> used) {
  int set = 0;
  while (std::ranges::find(used, set) != used.end()) ++set;
  return set;
}

// `steps` steps, from x to `out`: X becomes T X, where T and A change in each step.
void iterate(const Products& products, const TensorView& out, const TensorView& x, int steps,
             bool last) {
  const int a = 0;
  int t = a;  // none yet
  products.gram(a, x);
  for (int step = 1; step <= steps; ++step) {
    const int q = unused({a, t});
    products.polynomial(q, a);
    if (t == a) {
      t = q;
    } else {
      const int next = unused({a, q, t});
      products.product(next, q, t);
      t = next;
    }
    if (step == steps) break;
    const int m = unused({a, q, t});
    products.product(m, q, a);
    products.product(a, m, q);
  }
  products.apply(out, t, x, last);
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
  const Products products(q, k);
  iterate(products, k.other, k.x, NewtonSchulz::kFirstPart, false);
  iterate(products, k.x, k.other, NewtonSchulz::kSteps - NewtonSchulz::kFirstPart, true);
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
