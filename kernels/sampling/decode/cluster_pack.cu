// SPDX-License-Identifier: MIT
// The packed weights of DecodeBlocks by clusters: plan.h has the order.
#include "kernels/device/cuda.cuh"
#include "kernels/sampling/decode/cluster.h"
#include "kernels/sampling/decode/cluster_plan.h"

#include <algorithm>
#include <cstddef>

namespace weft::decode_cluster {
namespace {
constexpr int kThreads = 256;
constexpr int kLayersAtOnce = 32;  // kernel arguments are few

template <class T>
struct From {
  const T *qkv, *qkv_b, *proj, *proj_b, *up, *up_b, *down, *down_b;
  const float *norm_w[2], *norm_b[2];
};

template <class T>
struct PackArguments {
  unsigned char* weights;  // of the first layer
  From<T> layers[kLayersAtOnce];
};

// By a warp: what one column's sums need of a norm.
template <int kWidth, class T>
__device__ void put_constants(float* sums, float* biases, int i, const T* w, const T* bias,
                              const float* norm_w, const float* norm_b) {
  float sum = 0, shift = 0;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int k = lane; k < kWidth; k += kWarp) {
    sum = fmaf(to_float(w[k]), norm_w[k], sum);
    shift = fmaf(to_float(w[k]), norm_b[k], shift);
  }
  sum = warp_sum(sum), shift = warp_sum(shift);
  if (lane == 0) sums[i] = sum, biases[i] = shift + to_float(*bias);
}

template <class P, int kWidth, class T>
__device__ void pack_attention(unsigned char* to, const From<T>& from, int head, int rank) {
  using C = typename P::OfAttention;
  float* constants = reinterpret_cast<float*>(to);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread / kWarp; i < kQkvColumns; i += kThreads / kWarp) {
    const int row = P::qkv_row(head, rank, i);
    put_constants<kWidth>(constants + C::kSums, constants + C::kBiases, i,
                          from.qkv + int64_t{row} * kWidth, from.qkv_b + row, from.norm_w[0],
                          from.norm_b[0]);
  }
  for (int i = thread; i < P::kOwned; i += kThreads) {
    const int column = rank * P::kOwned + i;
    constants[C::kBranchBiases + i] = head == 0 ? to_float(from.proj_b[column]) : 0.0f;
    constants[C::kNormWeights + i] = from.norm_w[0][column];
  }
  T* qkv = reinterpret_cast<T*>(to + P::kMatrices);
  for (int i = thread; i < kQkvColumns * kWidth; i += kThreads)
    qkv[i] = from.qkv[int64_t{P::qkv_row(head, rank, P::qkv_column(i))} * kWidth + P::qkv_inner(i)];
  T* proj = reinterpret_cast<T*>(to + P::kProj);
  for (int i = thread; i < P::kOwned * kHeadSize; i += kThreads)
    proj[i] = from.proj[int64_t{rank * P::kOwned + P::proj_column(i)} * kWidth + head * kHeadSize +
                        P::proj_feature(i)];
}

template <class P, int kWidth, class T>
__device__ void pack_mlp(unsigned char* to, const From<T>& from, int head, int rank) {
  using C = typename P::OfMlp;
  float* constants = reinterpret_cast<float*>(to);
  const int thread = static_cast<int>(threadIdx.x), first = (head * kRanks + rank) * kHidden;
  for (int i = thread / kWarp; i < kHidden; i += kThreads / kWarp)
    put_constants<kWidth>(constants + C::kSums, constants + C::kBiases, i,
                          from.up + int64_t{first + i} * kWidth, from.up_b + first + i,
                          from.norm_w[1], from.norm_b[1]);
  for (int i = thread; i < P::kOwned; i += kThreads) {
    const int column = rank * P::kOwned + i;
    constants[C::kBranchBiases + i] = head == 0 ? to_float(from.down_b[column]) : 0.0f;
    constants[C::kNormWeights + i] = from.norm_w[1][column];
  }
  T* up = reinterpret_cast<T*>(to + P::kMatrices);
  for (int i = thread; i < kHidden * kWidth; i += kThreads)
    up[i] = from.up[int64_t{first + P::up_column(i)} * kWidth + P::up_inner(i)];
  T* down = reinterpret_cast<T*>(to + P::kDown);
  for (int i = thread; i < kHidden * kWidth; i += kThreads)
    down[i] = from.down[int64_t{P::down_column(i)} * 4 * kWidth + first + P::down_unit(i)];
}

// A thread block for each layer and thread block of the decoding kernel.
template <class T, class P, int kWidth>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const __grid_constant__ PackArguments<T> a) {
  const int layer = static_cast<int>(blockIdx.x) / P::kBlocks,
            block = static_cast<int>(blockIdx.x) % P::kBlocks;
  unsigned char* to = a.weights + int64_t{blockIdx.x} * P::kBytes;
  pack_attention<P, kWidth>(to, a.layers[layer], block / kRanks, block % kRanks);
  pack_mlp<P, kWidth>(to + P::kAttentionBytes, a.layers[layer], block / kRanks, block % kRanks);
}

template <class T>
From<T> from_of(const DecodeBlock& b) {
  return {
      .qkv = b.qkv.w.as<T>(),
      .qkv_b = b.qkv.b.as<T>(),
      .proj = b.proj.w.as<T>(),
      .proj_b = b.proj.b.as<T>(),
      .up = b.up.w.as<T>(),
      .up_b = b.up.b.as<T>(),
      .down = b.down.w.as<T>(),
      .down_b = b.down.b.as<T>(),
      .norm_w = {b.attention_norm.w.as<float>(), b.mlp_norm.w.as<float>()},
      .norm_b = {b.attention_norm.b.as<float>(), b.mlp_norm.b.as<float>()},
  };
}

template <class T, class P, int kWidth>
void pack(CudaQueue& queue, const DecodeBlocks& k, int64_t exchange_words) {
  const auto layers = static_cast<int64_t>(k.blocks.size());
  const Prepared at(kWidth, layers, exchange_words, P::kBytes);
  auto* memory = static_cast<unsigned char*>(k.prepared.data);
  WEFT_CUDA_CHECK(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(at.exchange), queue.stream));
  WEFT_CUDA_CHECK(cudaMemsetAsync(memory + at.exchange, 0xff,
                                  static_cast<std::size_t>(at.weights - at.exchange),
                                  queue.stream));
  PackArguments<T> a = {};
  for (int64_t first = 0; first < layers; first += kLayersAtOnce) {
    const int64_t count = std::min<int64_t>(kLayersAtOnce, layers - first);
    a.weights = memory + at.weights + first * P::kBlocks * P::kBytes;
    for (int64_t i = 0; i < count; ++i)
      a.layers[i] = from_of<T>(k.blocks[static_cast<std::size_t>(first + i)]);
    pack_kernel<T, P, kWidth>
        <<<static_cast<unsigned>(count * P::kBlocks), kThreads, 0, queue.stream>>>(a);
  }
}

// rows: of kExchangeWords each.
template <class P, int kWidth>
void pack(CudaQueue& queue, const DecodeBlocks& k, int64_t rows) {
  const int64_t words = rows * P::kExchangeWords;
  if (k.x.dtype == DType::f16) return pack<__half, P, kWidth>(queue, k, words);
  pack<__nv_bfloat16, P, kWidth>(queue, k, words);
}
}  // namespace

void prepare(CudaQueue& queue, const DecodeBlocks& k) {
  if (k.x.cols() == 512) return pack<Packing<512>, 512>(queue, k, k.x.rows());
  pack<Packing<256>, 256>(queue, k, k.x.rows());
}

}  // namespace weft::decode_cluster
