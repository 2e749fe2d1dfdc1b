// SPDX-License-Identifier: MIT
// Sums over whole tensors on CUDA: kBlocks blocks write a partial sum each, one more block adds
// them.
#include "kernels/device/cuda.cuh"
#include "kernels/optimizer/reduce.h"

#include <algorithm>
#include <cstddef>

namespace weft {
namespace {
constexpr int kThreads = SumOrder::kLanes;
constexpr int kBlocks = SumOrder::kBlocks;  // partial sums; all resident at once on a large GPU
constexpr int kGroup = SumOrder::kGroup;
static_assert(SumOrder::kWarp == kWarp);

struct Value {
  __device__ double operator()(float x) const { return x; }
};

struct Square {
  __device__ double operator()(float x) const { return static_cast<double>(x) * x; }
};

// Adds to `sum` a thread's terms of the sum of term(x[i]): one group of eight in each stride of the
// grid.
template <class T, class Term>
__device__ __forceinline__ void add_part(double& sum, const T* x, int64_t n, bool packed,
                                         Term term) {
#pragma unroll 4
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < n;
       i += SumOrder::kTurn) {
    float v[kGroup];
    load(v, x + i, n - i, packed);
    const int64_t count = n - i;
#pragma unroll
    for (int j = 0; j < kGroup; ++j) sum += j < count ? term(v[j]) : 0.0;
  }
}

// partial[block] = the block's terms of the sum over x.
template <class T, class Term>
__global__ void __launch_bounds__(kThreads)
    partial_sums(double* partial, const T* x, int64_t n, bool packed, Term term) {
  double sum = 0;
  add_part(sum, x, n, packed, term);
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

struct Parts {
  const float* x[SquareSum::kMost];
  int64_t n[SquareSum::kMost];
  int count;
  bool packed;
};

// The same for the squares of several tensors, one after the other.
__global__ void __launch_bounds__(kThreads)
    partial_squares(double* partial, const __grid_constant__ Parts parts) {
  double sum = 0;
  for (int i = 0; i < parts.count; ++i)
    add_part(sum, parts.x[i], parts.n[i], parts.packed, Square{});
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Called by one block: the sum of `count` numbers, on every thread.
__device__ double total_of(const double* partial, int64_t count) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  return block_sum<kThreads>(sum);
}

// y[0] = total * factor, and *copy too when there is one.
template <class T>
__global__ void __launch_bounds__(kThreads)
    write_total(T* y, float* copy, const double* partial, double factor) {
  const double total = total_of(partial, kBlocks) * factor;
  if (threadIdx.x != 0) return;
  *y = static_cast<T>(total);
  if (copy) *copy = static_cast<float>(total);
}

__global__ void __launch_bounds__(kThreads)
    write_clip(StepResults* results, const StepScalars* step, const double* partial, int64_t count,
               double clip) {
  const double squares = total_of(partial, count);
  if (threadIdx.x != 0) return;
  const double scale = step->gradient_scale;
  const auto norm = static_cast<float>(scale * sqrt(squares));
  double update = scale;
  if (clip > 0 && norm > clip) update = scale * clip / norm;
  results->gradient_norm = norm;
  results->update_scale = isfinite(norm) ? static_cast<float>(update) : 0.0f;
}

// Launches kBlocks partial sums into the workspace and returns their address.
template <class Term>
const double* launch_partial_sums(CudaQueue& q, const TensorView& x, Term term,
                                  const char* kernel) {
  std::size_t offset = 0;
  auto* partial = take_workspace<double>(q, offset, kBlocks, kernel);
  dispatch_cuda(x.dtype, [&]<class T>() {
    partial_sums<<<kBlocks, kThreads, 0, q.stream>>>(partial, x.as<T>(), x.size(), aligned16(x),
                                                     term);
  });
  return partial;
}

// Element i = dy / n, dy read from the device.
__global__ void __launch_bounds__(kThreads)
    fill_mean_gradient(float* dx, int64_t n, const float* dy, const StepScalars* step,
                       bool accumulate) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const float value = (dy ? *dy : step->loss_gradient) / static_cast<float>(n);
  dx[i] = accumulate ? dx[i] + value : value;
}

// The bits of x as unsigned numbers of the same size; the atomic adds integers, whose order does
// not matter.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_hashes(unsigned long long* sum, const T* x, int64_t n, uint64_t first) {
  unsigned long long mine = 0;
#pragma unroll 4
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    mine += Fingerprint::hash(x[i], first + static_cast<uint64_t>(i));
  mine = warp_sum(mine);
  if (threadIdx.x % kWarp == 0) atomicAdd(sum, mine);
}
}  // namespace

void compute(CudaQueue& q, const MeanForward& k) {
  const double* partial = launch_partial_sums(q, k.x, Value{}, MeanForward::kName);
  write_total<<<1, kThreads, 0, q.stream>>>(k.y.as<float>(), k.results ? &k.results->loss : nullptr,
                                            partial, 1.0 / static_cast<double>(k.x.size()));
}

void compute(CudaQueue& q, const MeanBackward& k) {
  const int64_t n = k.dx.view.size();
  if (n == 0) return;
  fill_mean_gradient<<<blocks_for(n, kThreads), kThreads, 0, q.stream>>>(
      k.dx.view.as<float>(), n, k.dy.or_null<float>(), k.step, k.dx.accumulate);
}

void compute(CudaQueue& q, const SquareSum& k) {
  Parts parts{.x = {}, .n = {}, .count = 0, .packed = true};
  for (const TensorView& x : k.xs) {
    parts.x[parts.count] = x.as<float>();
    parts.n[parts.count++] = x.size();
    parts.packed = parts.packed && aligned16(x);
  }
  std::size_t offset = 0;
  auto* partial = take_workspace<double>(q, offset, kBlocks, SquareSum::kName);
  partial_squares<<<kBlocks, kThreads, 0, q.stream>>>(partial, parts);
  write_total<<<1, kThreads, 0, q.stream>>>(k.y.as<double>(), nullptr, partial, 1.0);
}

void compute(CudaQueue& q, const ClipCoefficient& k) {
  const double* partial =
      k.squares ? k.squares.as<double>()
                : launch_partial_sums(q, k.gradients, Square{}, ClipCoefficient::kName);
  const int64_t count = k.squares ? k.squares.size() : kBlocks;
  write_clip<<<1, kThreads, 0, q.stream>>>(k.results, k.step, partial, count, k.clip);
}

void compute(CudaQueue& q, const Fingerprint& k) {
  const int64_t n = k.x.size();
  if (n == 0) return;
  const auto blocks = std::min<unsigned>(blocks_for(n, kThreads), kBlocks);
  dispatch_bits(k.x.dtype, [&]<class T>() {
    add_hashes<<<blocks, kThreads, 0, q.stream>>>(reinterpret_cast<unsigned long long*>(k.sum),
                                                  static_cast<const T*>(k.x.data), n,
                                                  static_cast<uint64_t>(k.first));
  });
}
}  // namespace weft
