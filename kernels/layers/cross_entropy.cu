// SPDX-License-Identifier: MIT
// Softmax cross-entropy on CUDA: a warp for each row; forward with V > 1024 a block, which reads it
// twice.
#include "kernels/device/cuda.cuh"
#include "kernels/layers/cross_entropy.h"

namespace weft {
namespace {
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kGroup = 8;
constexpr int kRowOfWarp = kWarp * kGroup;  // elements of a row that a warp takes at a time

template <class T>
struct Forward {
  float *loss, *lse;
  const T* logits;
  const int32_t* targets;
  int64_t rows, vocab;
  bool packed;
};

template <class T>
__device__ __forceinline__ void write_row(const Forward<T>& a, int64_t row, float largest,
                                          float sum) {
  const float lse = largest + logf(sum);
  const int32_t target = a.targets[row];
  a.lse[row] = lse;
  a.loss[row] = target < 0 ? 0.0f : lse - to_float(a.logits[row * a.vocab + target]);
}

// sum of exp(v[j] - largest) over the first `count` of a group; with expf: losses are f32 whatever
// T is.
__device__ __forceinline__ float exp_sum(const float (&v)[kGroup], float largest, int64_t count) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kGroup; ++j) sum += j < count ? expf(v[j] - largest) : 0.0f;
  return sum;
}

__device__ __forceinline__ float max_of_group(const float (&v)[kGroup], float largest,
                                              int64_t count) {
#pragma unroll
  for (int j = 0; j < kGroup; ++j) largest = j < count ? fmaxf(largest, v[j]) : largest;
  return largest;
}

template <class T, int kGroups>
__global__ void __launch_bounds__(kThreads) forward_warp_per_row(const Forward<T> a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int lane = threadIdx.x % kWarp;
  float v[kGroups][kGroup];
  float largest = -INFINITY;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int64_t first = g * kRowOfWarp + lane * kGroup;
    load(v[g], a.logits + row * a.vocab + first, a.vocab - first, a.packed);
    largest = max_of_group(v[g], largest, a.vocab - first);
  }
  largest = warp_reduce(largest, Max{});
  float sum = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    sum += exp_sum(v[g], largest, a.vocab - (g * kRowOfWarp + lane * kGroup));
  sum = warp_sum(sum);
  if (lane == 0) write_row(a, row, largest, sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_block_per_row(const Forward<T> a) {
  const int64_t row = blockIdx.x;
  const T* logits = a.logits + row * a.vocab;
  float v[kGroup], largest = -INFINITY, sum = 0.0f;
  for (int64_t first = threadIdx.x * kGroup; first < a.vocab; first += kThreads * kGroup) {
    load(v, logits + first, a.vocab - first, a.packed);
    largest = max_of_group(v, largest, a.vocab - first);
  }
  largest = block_reduce<kThreads>(largest, Max{});
  for (int64_t first = threadIdx.x * kGroup; first < a.vocab; first += kThreads * kGroup) {
    load(v, logits + first, a.vocab - first, a.packed);
    sum += exp_sum(v, largest, a.vocab - first);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) write_row(a, row, largest, sum);
}

template <class T>
struct Backward {
  T* dlogits;
  const float *dloss, *lse;
  const T* logits;
  const int32_t* targets;
  int64_t rows, vocab;
  bool packed, accumulate;
};

template <class T>
__global__ void __launch_bounds__(kThreads) backward_warp_per_row(const Backward<T> a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const float lse = a.lse[row];
  const int32_t target = a.targets[row];
  const float scale = target < 0 ? 0.0f : a.dloss[row];
  for (int64_t first = threadIdx.x % kWarp * kGroup; first < a.vocab; first += kRowOfWarp) {
    float v[kGroup];
    load(v, a.logits + row * a.vocab + first, a.vocab - first, a.packed);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      const float p = exp_for<T>(v[j] - lse) - (first + j == target ? 1.0f : 0.0f);
      v[j] = target < 0 ? 0.0f : scale * p;
    }
    store(a.dlogits + row * a.vocab + first, v, a.vocab - first, a.packed, a.accumulate);
  }
}
}  // namespace

void compute(CudaQueue& q, const CrossEntropyForward& k) {
  const int64_t rows = k.logits.rows(), vocab = k.logits.cols();
  if (rows == 0) return;
  dispatch_cuda(k.logits.dtype, [&]<class T>() {
    const Forward<T> a = {k.loss.as<float>(),
                          k.lse.as<float>(),
                          k.logits.as<T>(),
                          k.targets.as<int32_t>(),
                          rows,
                          vocab,
                          aligned_rows(k.logits)};
    if (vocab <= kRowOfWarp) {
      forward_warp_per_row<T, 1><<<blocks_for(rows, kWarps), kThreads, 0, q.stream>>>(a);
    } else if (vocab <= 4 * kRowOfWarp) {
      forward_warp_per_row<T, 4><<<blocks_for(rows, kWarps), kThreads, 0, q.stream>>>(a);
    } else {
      forward_block_per_row<T><<<blocks_for(rows, 1), kThreads, 0, q.stream>>>(a);
    }
  });
}

void compute(CudaQueue& q, const CrossEntropyBackward& k) {
  const int64_t rows = k.logits.rows(), vocab = k.logits.cols();
  if (rows == 0) return;
  dispatch_cuda(k.logits.dtype, [&]<class T>() {
    const Backward<T> a = {k.dlogits.view.as<T>(),
                           k.dloss.as<float>(),
                           k.lse.as<float>(),
                           k.logits.as<T>(),
                           k.targets.as<int32_t>(),
                           rows,
                           vocab,
                           aligned_rows(k.logits) && aligned16(k.dlogits.view),
                           k.dlogits.accumulate};
    backward_warp_per_row<T><<<blocks_for(rows, kWarps), kThreads, 0, q.stream>>>(a);
  });
}
}  // namespace weft
