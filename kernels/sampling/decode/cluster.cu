// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters: the kernel, what it covers, its launch.
#include "kernels/forms.h"
#include "kernels/sampling/decode/cluster.h"
#include "kernels/sampling/decode/cluster_compute.cuh"
#include "kernels/sampling/decode/cluster_exchange.cuh"
#include "kernels/sampling/decode/cluster_streams.cuh"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::decode_cluster {
namespace {
template <class T, int kWidth, int kRows>
__device__ __forceinline__ void init_barriers(const Scene<T, kWidth, kRows>& scene) {
  Shared<kWidth, kRows>& s = scene.s;
  const auto init = [](const uint64_t& barrier, int arrivals) {
    device::mbarrier_init(address(barrier), arrivals);
  };
  // Those that count bytes from other ranks expect those of the first layer.
  const auto expect = [&](const uint64_t& barrier, int bytes) {
    init(barrier, 1);
    device::mbarrier_arrive_expect_tx(address(barrier), bytes);
  };
  constexpr int kExchangers = exchange_warps<kRows>();
  for (int i = 0; i < 2; ++i) {
    init(s.attention_full[i], 1), init(s.mlp_full[i], 1);
    init(s.attention_empty[i], kWarps + kExchangers), init(s.mlp_empty[i], kWarps + kExchangers);
    for (int row = 0; row < kRows; ++row) {
      expect(s.x_here[i][row], s.kXBytes);
      expect(s.moments_here[i][row], s.kMomentsBytes);
    }
  }
  for (int i = 0; i < kMostSlots; ++i) init(s.keys_full[i], 1), init(s.keys_empty[i], kWarps);
  for (int row = 0; row < kRows; ++row) {
    expect(s.qkv_here[row], s.kQkvBytes);
    expect(s.attended_here[row], s.kAttendedBytes);
    expect(s.down_here[row], s.kDownBytes);
  }
  device::fence_mbarrier_init();
  device::fence_proxy_async();
}

// What the layers need of the position at hand, and the words of the next launch.
template <class T, int kWidth, int kRows>
__device__ __forceinline__ void prologue(const Scene<T, kWidth, kRows>& scene) {
  const Arguments<T>& a = scene.a;
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kThreads = threads<kRows>();
  if (thread == 0) {
    init_barriers(scene);
    scene.s.settings = {a.scale, a.qk.eps, a.qk.norm || a.qk.table, a.qk.norm, a.f};
  }
  if (thread < a.layout_count) {
    const Layout& l = a.layouts[thread];
    const int group = l.group_of_head[scene.head], begin = l.key_start[group],
              count = l.key_start[group + 1] - begin, first = first_of(scene.rank, count),
              first_row = l.first_row[scene.head], own = l.own_row[scene.head];
    scene.s.lists[thread] = {begin + first, first_of(scene.rank + 1, count) - first, first_row,
                             own < 0 ? -1 : own - first_row};
  }
  for (int i = thread; i < a.rows * kHeadSize; i += kThreads)
    scene.s.turns[i / kHeadSize][i % kHeadSize] =
        a.qk.table ? __ldg(a.qk.row(i / kHeadSize, 0) + i % kHeadSize) : (i % 2 == 0 ? 1.0f : 0.0f);
  uint4* other =
      reinterpret_cast<uint4*>(a.exchange + (scene.exchange == a.exchange ? a.set_words : 0));
  for (int64_t i = blockIdx.x * kThreads + thread; i < a.set_words / 4;
       i += int64_t{gridDim.x} * kThreads)
    other[i] = {kAbsent, kAbsent, kAbsent, kAbsent};
  __syncthreads();
  device::cluster_sync();
}

template <class T, int kWidth, int kRows>
__global__ void __launch_bounds__(threads<kRows>(), 1)
    decode_kernel(const __grid_constant__ Arguments<T> a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using P = Packing<kWidth>;
  extern __shared__ __align__(128) unsigned char shared[];
  const Scene<T, kWidth, kRows> scene(a, shared);
  prologue(scene);
  if (scene.warp < kWarps) {
    Compute<T, kWidth, kRows>(scene).run();
  } else if (scene.warp >= kFirstExchange) {
    Exchange<T, kWidth, kRows>(scene).run();
  } else if (scene.warp == kKeyStream) {
    KeyStream<T, kWidth, kRows>(scene).run();
  } else if (scene.lane == 0 && scene.warp == kAttentionStream) {
    stream_weights<8, P::kAttentionBytes>(scene, 0, {a.stages.attention}, scene.attention,
                                          a.pace.attention, scene.s.attention_full,
                                          scene.s.attention_empty);
  } else if (scene.lane == 0) {
    stream_weights<16, P::kMlpBytes>(scene, P::kAttentionBytes, {a.stages.mlp}, scene.mlp,
                                     a.pace.mlp, scene.s.mlp_full, scene.s.mlp_empty);
  }
  __syncthreads();
  device::cluster_sync();  // nobody leaves while others write to its memory
#endif
}

int shared_limit() {
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

template <int kWidth, int kRows>
int shared_bytes(const Stages& stages) {
  using P = Packing<kWidth>;
  return static_cast<int>(sizeof(Shared<kWidth, kRows>)) + stages.attention * P::kAttentionBytes +
         stages.mlp * P::kMlpBytes + stages.keys * kSlotBytes;
}

// Two stages of weights where they leave room for kStepsAtOnce steps of keys; keys take the rest.
template <int kWidth, int kRows>
Stages stages_for(int limit) {
  for (const Stages& least :
       {Stages{2, 2, kStepsAtOnce}, {2, 1, kStepsAtOnce}, {1, 1, kStepsAtOnce}}) {
    const int left = limit - shared_bytes<kWidth, kRows>(least);
    if (left < 0) continue;
    return {least.attention, least.mlp, std::min(kMostSlots, kStepsAtOnce + left / kSlotBytes)};
  }
  return {};
}

template <class Kernel>
cudaLaunchConfig_t config_of(Kernel kernel, int blocks, int block_threads, int bytes,
                             cudaLaunchAttribute (&attributes)[2]) {
  WEFT_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kRanks, 1, 1};
  attributes[1].id = cudaLaunchAttributeCooperative;  // all are resident, or the launch fails
  attributes[1].val.cooperative = 1;
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

template <class T, int kWidth, int kRows>
void start(CudaQueue& queue, const DecodeBlocks& k, Stages stages, Pace pace) {
  using P = Packing<kWidth>;
  const Prepared at(kWidth, std::ssize(k.blocks), k.x.rows(), P::kBytes);
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
  const auto kernel = decode_kernel<T, kWidth, kRows>;
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = config_of(kernel, P::kBlocks, threads<kRows>(),
                                        shared_bytes<kWidth, kRows>(stages), attributes);
  config.stream = queue.stream;
  WEFT_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a));
}

template <class T, int kWidth, int kRows>
void start(CudaQueue& queue, const DecodeBlocks& k) {
  start<T, kWidth, kRows>(queue, k, stages_for<kWidth, kRows>(shared_limit()), Pace{600, 400, 800});
}

template <class T, int kWidth>
void start(CudaQueue& queue, const DecodeBlocks& k) {
  if (k.x.rows() == 1) return start<T, kWidth, 1>(queue, k);
  start<T, kWidth, kMostRows>(queue, k);
}
}  // namespace

namespace {
bool aligned(const DecodeBlock& b) {
  return aligned16(b.k, b.v) && aligned16(b.up.w, b.down.w) && aligned16(b.qkv.w, b.proj.w);
}

// Clusters that fit on the GPU at once.
template <int kWidth>
bool fits() {
  constexpr auto kernel = decode_kernel<__nv_bfloat16, kWidth, kMostRows>;
  static const int most = [] {
    cudaLaunchAttribute attributes[2] = {};
    const cudaLaunchConfig_t config = config_of(
        kernel, Packing<kWidth>::kBlocks, threads<kMostRows>(),
        shared_bytes<kWidth, kMostRows>(stages_for<kWidth, kMostRows>(shared_limit())), attributes);
    int clusters = 0;
    WEFT_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    return clusters;
  }();
  return most >= Packing<kWidth>::kHeads;
}

int64_t bytes_of_block(int64_t width) {
  return width == 512 ? Packing<512>::kBytes : Packing<256>::kBytes;
}
}  // namespace

int64_t prepared_bytes(const DecodeBlocks& k) {
  if (!reason_against_sm90a(k.x.dtype, compute_capability()).empty() || k.first_key) return 0;
  const int64_t width = k.x.cols(), layers = std::ssize(k.blocks), rows = k.x.rows();
  if ((width != 256 && width != 512) || k.heads * kHeadSize != width || k.qk_size != kHeadSize ||
      k.v_size != kHeadSize || k.hidden.cols() != 4 * width)
    return 0;
  if (rows < 1 || rows > kMostRows || layers > kMostLayers ||
      !(width == 512 ? fits<512>() : fits<256>()))
    return 0;
  std::vector<const int32_t*> layouts;
  for (const DecodeBlock& block : k.blocks) {
    if (block.list_keys || block.own_list || !aligned(block)) return 0;
    if (std::find(layouts.begin(), layouts.end(), block.own_row) == layouts.end())
      layouts.push_back(block.own_row);
  }
  if (layouts.size() > kMostLayouts) return 0;
  return Prepared(static_cast<int>(width), layers, rows, bytes_of_block(width)).bytes;
}

bool covers(const DecodeBlocks& k) {
  if (!k.prepared) return false;
  WEFT_CHECK(prepared_bytes(k) == k.prepared.size(), "decode_blocks: ", k.prepared.size(),
             " bytes of weights were prepared, this model and batch need ", prepared_bytes(k),
             "; make the cache again");
  return true;
}

void compute(CudaQueue& queue, const DecodeBlocks& k) {
  const bool half = k.x.dtype == DType::f16;
  if (k.x.cols() == 512)
    return half ? start<__half, 512>(queue, k) : start<__nv_bfloat16, 512>(queue, k);
  return half ? start<__half, 256>(queue, k) : start<__nv_bfloat16, 256>(queue, k);
}
}  // namespace weft::decode_cluster
