// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters: the course of a thread block and the launch.
#pragma once

#include "kernels/forms.h"
#include "kernels/sampling/decode/cluster.h"
#include "kernels/sampling/decode/cluster_streams.cuh"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::decode_cluster {
// What the layers need of the position at hand, and the words of the next launch.
template <class AnyContext>
__device__ __forceinline__ void prologue(const AnyContext& context) {
  const auto& a = context.a;
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kThreads = AnyContext::kThreads;
  if (thread == 0)
    context.s.settings = {a.scale, a.qk.eps, a.qk.norm || a.qk.table, a.qk.norm, a.f};
  if (thread < a.layout_count) {
    const Layout& l = a.layouts[thread];
    const int group = l.group_of_head[context.head], begin = l.key_start[group],
              count = l.key_start[group + 1] - begin, first = first_of(context.rank, count),
              first_row = l.first_row[context.head], own = l.own_row[context.head];
    context.s.lists[thread] = {begin + first, first_of(context.rank + 1, count) - first, first_row,
                               own < 0 ? -1 : own - first_row};
  }
  for (int i = thread; i < a.rows * kHeadSize; i += kThreads)
    context.s.turns[i / kHeadSize][i % kHeadSize] =
        a.qk.table ? __ldg(a.qk.row(i / kHeadSize, 0) + i % kHeadSize) : (i % 2 == 0 ? 1.0f : 0.0f);
  uint4* other =
      reinterpret_cast<uint4*>(a.exchange + (context.exchange == a.exchange ? a.set_words : 0));
  for (int64_t i = blockIdx.x * kThreads + thread; i < a.set_words / 4;
       i += int64_t{gridDim.x} * kThreads)
    other[i] = {kAbsent, kAbsent, kAbsent, kAbsent};
  __syncthreads();
  device::cluster_sync();
}

// Weights of the first layer are on their way before the launch ahead has ended.
template <class AnyContext, class Compute, class Exchange, class Keys>
__device__ __forceinline__ void run_block(AnyContext& context) {
  if (threadIdx.x == 0) {
    context.s.init_barriers(context.a.rows);
    device::fence_mbarrier_init();
    device::fence_proxy_async();
  }
  __syncthreads();
  auto of_attention = attention_weights(context);
  auto of_mlp = mlp_weights(context);
  const bool brings_attention = context.lane == 0 && context.warp == kAttentionStream,
             brings_mlp = context.lane == 0 && context.warp == kMlpStream;
  if (brings_attention) of_attention.begin();
  if (brings_mlp) of_mlp.begin();
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  context.choose_exchange();
  prologue(context);
  if (context.warp < kWarps)
    Compute(context).run();
  else if (context.warp >= kFirstExchange)
    Exchange(context).run();
  else if (context.warp == kKeyStream)
    Keys(context).run();
  else if (brings_attention)
    of_attention.run(context.a.layers);
  else if (brings_mlp)
    of_mlp.run(context.a.layers);
  __syncthreads();
  device::cluster_sync();  // nobody leaves while others write to its memory
}

inline int shared_limit() {
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

template <class AnyContext>
int shared_bytes(const Stages& stages) {
  using P = typename AnyContext::P;
  return static_cast<int>(sizeof(typename AnyContext::SharedType)) +
         stages.attention * P::kAttentionBytes + stages.mlp * P::kMlpBytes +
         stages.keys * AnyContext::kSlotBytes;
}

template <class Kernel>
cudaLaunchConfig_t config_of(Kernel kernel, int blocks, int block_threads, int bytes,
                             cudaLaunchAttribute (&attributes)[2]) {
  WEFT_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kRanks, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(block_threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  config.attrs = attributes;
  config.numAttrs = 2;
  return config;
}

// The layers and their lists.
template <class T>
void add_layers(Arguments<T>& a, const DecodeBlocks& k) {
  for (const DecodeBlock& from : k.blocks) {
    int layout = 0;
    while (layout < a.layout_count && a.layouts[layout].own_row != from.own_row) ++layout;
    if (layout == a.layout_count)
      a.layouts[a.layout_count++] = {from.keys, from.key_start, from.group_of_head, from.first_row,
                                     from.own_row};
    a.of_layer[a.layers++] = {
        .k = from.k.as<T>(),
        .v = from.v.as<T>(),
        .eps = {static_cast<float>(from.attention_norm.eps), static_cast<float>(from.mlp_norm.eps)},
        .cache_rows = static_cast<int32_t>(from.k.shape[1]),
        .layout = layout,
    };
  }
}

template <class AnyContext, class T>
void start(CudaQueue& queue, void (*kernel)(Arguments<T>), const DecodeBlocks& k,
           const Prepared& at, const Stages& stages, const Pace& pace) {
  auto* memory = static_cast<unsigned char*>(k.prepared.data);
  Arguments<T> a = {};
  a.y = k.y.as<T>();
  a.x = k.x.as<T>();
  a.launches = reinterpret_cast<uint32_t*>(memory);
  a.exchange = reinterpret_cast<uint32_t*>(memory + at.exchange);
  a.set_words = at.set_words;
  a.weights = memory + at.weights;
  a.rows = static_cast<int32_t>(k.x.rows());
  a.stages = stages;
  a.pace = pace;
  a.scale = static_cast<float>(k.scale) * device::kLog2E;
  a.qk = QkAngles(k.qk, k.qk_size);
  a.f = k.f;
  add_layers(a, k);
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = config_of(kernel, AnyContext::P::kBlocks, AnyContext::kThreads,
                                        shared_bytes<AnyContext>(stages), attributes);
  config.stream = queue.stream;
  WEFT_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a));
}

// Clusters of a kernel that fit on the GPU at once are enough.
template <class AnyContext, class Kernel>
bool fits(Kernel kernel, const Stages& stages) {
  cudaLaunchAttribute attributes[2] = {};
  const cudaLaunchConfig_t config = config_of(kernel, AnyContext::P::kBlocks, AnyContext::kThreads,
                                              shared_bytes<AnyContext>(stages), attributes);
  int clusters = 0;
  WEFT_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return clusters >= AnyContext::P::kHeads;
}

// What the kernel needs of a model, beside its number of sequences.
inline bool covers_model(const DecodeBlocks& k) {
  if (!reason_against_sm90a(k.x.dtype, compute_capability()).empty() || k.first_key) return false;
  const int64_t width = k.x.cols();
  if ((width != 256 && width != 512) || k.heads * kHeadSize != width || k.qk_size != kHeadSize ||
      k.v_size != kHeadSize || k.hidden.cols() != 4 * width || std::ssize(k.blocks) > kMostLayers)
    return false;
  std::vector<const int32_t*> layouts;
  for (const DecodeBlock& b : k.blocks) {
    const bool aligned =
        aligned16(b.k, b.v) && aligned16(b.up.w, b.down.w) && aligned16(b.qkv.w, b.proj.w);
    if (b.list_keys || b.own_list || !aligned) return false;
    if (std::find(layouts.begin(), layouts.end(), b.own_row) == layouts.end())
      layouts.push_back(b.own_row);
  }
  return layouts.size() <= kMostLayouts;
}

// Keys of a layer that a rank has, at most.
inline int64_t longest_share(const DecodeBlocks& k) {
  int64_t longest = 0;
  for (const DecodeBlock& block : k.blocks) longest = std::max(longest, block.longest);
  return (longest + kRanks - 1) / kRanks;
}
}  // namespace weft::decode_cluster
