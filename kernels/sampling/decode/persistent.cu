// SPDX-License-Identifier: MIT
// DecodeBlocks on CUDA as one persistent kernel.
#include "kernels/forms.h"
#include "kernels/sampling/decode/attention.cuh"
#include "kernels/sampling/decode/matmul.cuh"
#include "kernels/sampling/decode/persistent.h"

#include <algorithm>
#include <cstddef>

namespace weft::decode_persistent {
namespace {
// Bytes of exchange buffers of a launch, where one layer takes no more: they stay in the L2 cache.
constexpr int64_t kExchangeBytes = 16 << 20;

// What all layers need, to shared memory: a chain of loads that the layers then do not wait for.
template <class T>
__device__ __forceinline__ void copy_arguments(const Scene<T>& s) {
  const Arguments<T>& a = s.a;
  auto* blocks = s.template at<Block<T>>(a.memory.blocks);
  for (int i = threadIdx.x; i < a.layers * 16; i += kThreads)
    reinterpret_cast<uint64_t*>(blocks)[i] = reinterpret_cast<const uint64_t*>(a.blocks)[i];
  List* lists = s.template at<List>(a.memory.lists);
  for (int i = threadIdx.x; i < a.layout_count * a.sizes.heads; i += kThreads) {
    const int head = i % a.sizes.heads;
    const Layout& l = a.layouts[i / a.sizes.heads];
    const int group = l.group_of_head[head], begin = l.key_start[group], first = l.first_row[head],
              own = l.own_row[head];
    lists[i] = {begin, l.key_start[group + 1] - begin, first, own < 0 ? -1 : own - first};
  }
  if (threadIdx.x == 0) {
    Place& p = *s.template at<Place>(a.memory.place);
    p.group = static_cast<int>(blockIdx.x) / a.groups.ranks;
    p.rank = static_cast<int>(blockIdx.x) - p.group * a.groups.ranks;
    p.first_row = a.groups.first_row(p.group, a.sizes.batch);
    p.rows = a.groups.first_row(p.group + 1, a.sizes.batch) - p.first_row;
    for (int i = 0; i < kBuffers; ++i) {
      const int count = i == kAttended ? p.rows * a.sizes.heads : a.sizes.columns(i) / kTileColumns;
      p.first[i] = first_of(p.rank, count, a.groups.ranks);
      p.count[i] = first_of(p.rank + 1, count, a.groups.ranks) - p.first[i];
    }
  }
  __syncthreads();
  if (threadIdx.x < a.layout_count) {
    int longest = 0;
    for (int head = 0; head < a.sizes.heads; ++head)
      longest = max(longest, lists[threadIdx.x * a.sizes.heads + head].count);
    s.template at<Rounds>(a.memory.rounds)[threadIdx.x] =
        rounds_of(s.place().count[kAttended], longest, a.memory.slots());
  }
  __syncthreads();
}

template <class T, int kQk, int kV>
__global__ void __launch_bounds__(kThreads, 1)
    persistent_kernel(const __grid_constant__ Arguments<T> a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char shared[];
  Scene<T> scene{a, shared};
  copy_arguments(scene);
  Attention<T, kQk, kV> attention(scene);
  if (this_thread().warp == 0) prefetch_layer(scene, 0);
  NormShare<T> norm;
  norm.read(scene, this_thread(), 0, false);
  norm.put(scene, this_thread());
#pragma unroll 1
  for (int layer = 0; layer < a.layers; ++layer) {
    if (this_thread().warp == 0) prefetch_layer(scene, layer + 1);
#pragma unroll 1  // one copy of the code
    for (int matrix = kQkv; matrix <= kDown; ++matrix) {
      if (matrix == kProj) attention.run(layer);
      Matmul<T>(scene, layer, matrix).run();
    }
  }
  device::cp_async_wait_all();
#endif
}

template <class T>
Block<T> block_of(const DecodeBlock& from) {
  Block<T> to = {};
  const DecodeAffine* maps[4] = {&from.qkv, &from.proj, &from.up, &from.down};  // as enum Matrix
  for (int i = 0; i < 4; ++i) {
    to.w[i] = maps[i]->w.as<T>();
    to.b[i] = maps[i]->b.as<T>();
  }
  const DecodeNorm* norms[2] = {&from.attention_norm, &from.mlp_norm};
  for (int i = 0; i < 2; ++i) {
    to.norm_w[i] = norms[i]->w.as<float>();
    to.norm_b[i] = norms[i]->b.as<float>();
    to.eps[i] = static_cast<float>(norms[i]->eps);
  }
  to.k = from.k.as<T>();
  to.v = from.v.as<T>();
  to.rows = static_cast<int32_t>(from.k.shape[1]);
  return to;
}

Sizes sizes_of(const DecodeBlocks& k) {
  const auto of = [](int64_t n) { return static_cast<int>(n); };
  return {of(k.x.rows()), of(k.x.cols()), of(k.heads),
          of(k.qk_size),  of(k.v_size),   of(k.hidden.cols())};
}

Memory memory_of(const Sizes& s, int rows, int stages) {
  return memory_of(s, rows, stages, s.qk > 64 ? 2 : 1, s.v > 64 || s.qk > 64 ? 2 : 1,
                   sizeof(Block<__half>));
}

int shared_limit() {
  int device = 0, bytes = 0;
  WEFT_CUDA_CHECK(cudaGetDevice(&device));
  WEFT_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

template <class T>
void start(CudaQueue& queue, void (*kernel)(Arguments<T>), const Arguments<T>& a) {
  WEFT_CUDA_CHECK(cudaMemsetAsync(
      a.exchange, 0xff, static_cast<std::size_t>(a.layers) * a.plan.of_layer * 4, queue.stream));
  WEFT_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.memory.bytes));
  cudaLaunchAttribute cooperative = {};  // all thread blocks are resident, or the launch fails
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(a.groups.groups * a.groups.ranks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(a.memory.bytes);
  config.stream = queue.stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  WEFT_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a));
}

// Adds the block from k.blocks[i] on that fit into a launch; returns the number of the next.
template <class T>
std::size_t add_layers(Arguments<T>& a, const DecodeBlocks& k, std::size_t i) {
  const int64_t bytes = int64_t{a.plan.of_layer} * 4;
  a.layers = a.layout_count = 0;
  for (; i < k.blocks.size() && a.layers < kMostLayers; ++i) {
    const DecodeBlock& from = k.blocks[i];
    if (a.layers > 0 && (a.layers + 1) * bytes > kExchangeBytes) break;
    int layout = 0;
    while (layout < a.layout_count && a.layouts[layout].own_row != from.own_row) ++layout;
    if (layout == kMostLayouts || (layout + 1) * a.sizes.heads > kMostLists) break;
    if (layout == a.layout_count)
      a.layouts[a.layout_count++] = {from.keys, from.key_start, from.group_of_head, from.first_row,
                                     from.own_row};
    a.blocks[a.layers] = block_of<T>(from);
    a.blocks[a.layers++].layout = layout;
  }
  return i;
}

template <class T>
void launch(CudaQueue& queue, const DecodeBlocks& k) {
  const int blocks = multiprocessors(), limit = shared_limit(),
            most_rows =
                memory_of(sizes_of(k), kMostRows, 1).bytes <= limit ? kMostRows : kMostRows / 2;
  const int64_t batch = k.x.rows(), width = k.x.cols(), most = int64_t{blocks} * most_rows;
  Arguments<T> a = {};
  a.scale = static_cast<float>(k.scale);
  a.qk = QkAngles(k.qk, k.qk_size);
  a.f = k.f;
  for (int64_t first = 0; first < batch; first += most) {
    a.sizes = sizes_of(k);
    a.sizes.batch = static_cast<int>(std::min(most, batch - first));
    a.plan = Exchange(a.sizes, copies_for(a.sizes.batch));
    a.first_sequence = static_cast<int32_t>(first);
    a.groups = Groups(a.sizes.batch, blocks, most_rows);
    const int rows = (a.sizes.batch + a.groups.groups - 1) / a.groups.groups;
    a.memory = memory_of(a.sizes, rows, 2);
    if (a.memory.bytes > limit) a.memory = memory_of(a.sizes, rows, 1);
    a.x = k.x.as<T>() + first * width;
    a.y = k.y.as<T>() + first * width;
    for (std::size_t i = 0; i < k.blocks.size(); a.x = a.y) {
      i = add_layers(a, k, i);
      std::size_t offset = 0;
      a.exchange = take_workspace<uint32_t>(queue, offset, int64_t{a.layers} * a.plan.of_layer,
                                            DecodeBlocks::kName);
      if (a.sizes.v <= 64 && a.sizes.qk <= 64)
        start(queue, persistent_kernel<T, 1, 1>, a);
      else if (a.sizes.qk <= 64)
        start(queue, persistent_kernel<T, 1, 2>, a);
      else
        start(queue, persistent_kernel<T, 2, 2>, a);
    }
  }
}

bool aligned(const DecodeBlock& b) {
  for (const DecodeAffine* map : {&b.qkv, &b.proj, &b.up, &b.down})
    if (!aligned16(map->w, map->b)) return false;
  for (const DecodeNorm* norm : {&b.attention_norm, &b.mlp_norm})
    if (!aligned16(norm->w, norm->b)) return false;
  return aligned16(b.k, b.v);
}

}  // namespace

bool covers(const DecodeBlocks& k) {
  if (!reason_against_sm90a(k.x.dtype, compute_capability()).empty() || k.first_key) return false;
  if (k.qk_size > 128 || k.v_size > 128 || k.qk_size % 8 != 0 || k.v_size % 8 != 0) return false;
  for (const TensorView* part : {&k.x, &k.packed, &k.attended, &k.hidden})
    if (part->cols() % 64 != 0) return false;
  if (k.x.cols() > kMostWidth || k.hidden.cols() > 8192 || k.heads > kMostLists) return false;
  if (!aligned16(k.x, k.y, k.qk.table)) return false;
  const Memory least = memory_of(sizes_of(k), 1, 1);
  if (least.bytes > shared_limit()) return false;
  for (const DecodeBlock& block : k.blocks)
    if (!aligned(block) || block.list_keys || block.longest == 0 ||
        block.longest > longest_list(least))
      return false;
  return true;
}

void compute(CudaQueue& queue, const DecodeBlocks& k) {
  if (k.x.dtype == DType::f16) return launch<__half>(queue, k);
  launch<__nv_bfloat16>(queue, k);
}
}  // namespace weft::decode_persistent
