// SPDX-License-Identifier: MIT
// DecodeBlocks on CUDA: one launch where a cluster of thread blocks can, else five launches a block.
#include "kernels/form_reasons.h"
#include "kernels/sampling/decode_blocks_steps.h"
#include "kernels/sampling/decode_cluster_attention.cuh"
#include "kernels/sampling/decode_cluster_matmul.cuh"

namespace weft {
namespace decode_cluster {
namespace {

template <class T, int kQk, int kV, int kAhead, int kTogether>
__global__ void __launch_bounds__(kThreads, 1) cluster_kernel(const __grid_constant__ Arguments<T> a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace device;
  extern __shared__ __align__(128) unsigned char shared[];
  const Scene<T> scene = {a, device::shared_address(shared), static_cast<int>(cluster_rank()),
                          static_cast<int>(blockIdx.x / kRanks) * a.sizes.sequences};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Layout::kBarriers; ++i) {
      const bool mma_warps_arrive = (i >= Layout::kEmpty && i < Layout::kSmallFull) ||
                                    i == Layout::kSmallEmpty || i == Layout::kSmallEmpty + 1;
      mbarrier_init(scene.barrier(i), mma_warps_arrive ? kMmaWarps : 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync();
  const int warp = threadIdx.x / kWarp;
  if (warp < kAttentionWarps) {
    Attention<T, kQk, kV, kAhead, kTogether>(scene).run();
  } else if (warp == kAttentionWarps + kMmaWarps) {
    load_weights(scene);
  } else if (a.sizes.padded() <= 16) {
    Matmuls<T, 16>(scene).run();
  } else {
    Matmuls<T, kMostSequences>(scene).run();
  }
  __syncwarp();
  cluster_sync();  // nobody leaves while somebody may still send
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
  to.keys = from.keys;
  to.key_start = from.key_start;
  to.group_of_head = from.group_of_head;
  to.first_row = from.first_row;
  to.own_row = from.own_row;
  to.rows = static_cast<std::int32_t>(from.k.shape[1]);
  return to;
}

Sizes sizes_of(const DecodeBlocks& k) {
  const auto of = [](std::int64_t n) { return static_cast<int>(n); };
  return {of(k.x.rows()), of(k.x.cols()),      of(k.heads),   of(k.qk_size),
          of(k.v_size),   of(k.hidden.cols()), kMostSequences};
}

int shared_limit() {
  int device = 0, bytes = 0;
  WEFT_CUDA_CHECK(cudaGetDevice(&device));
  WEFT_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

// Sequences of a cluster that fit into shared memory with three pieces of weights. 0: none.
int most_sequences(Sizes s, int limit) {
  for (const int sequences : {kMostSequences, 16}) {
    s.sequences = sequences;
    if (layout_of(s, limit).piece_count >= 3) return sequences;
  }
  return 0;
}

// As few sequences for a cluster as leave all clusters room at the same time, if need be in waves.
template <class T>
int sequences_of_cluster(void (*kernel)(Arguments<T>), cudaLaunchConfig_t config, int batch, int most) {
  config.gridDim = dim3(kRanks);
  int clusters = 0;
  WEFT_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  WEFT_CHECK(clusters > 0, "decode_blocks: this GPU has no room for a cluster of ", kRanks, " thread blocks");
  const int at_once = clusters * most, waves = (batch + at_once - 1) / at_once;
  return (batch + clusters * waves - 1) / (clusters * waves);
}

template <class T>
void start(CudaQueue& queue, void (*kernel)(Arguments<T>), Arguments<T>& a) {
  const int limit = shared_limit();
  WEFT_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit));
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kRanks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(limit);
  config.stream = queue.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  a.sizes.sequences = sequences_of_cluster(kernel, config, a.sizes.batch, most_sequences(a.sizes, limit));
  a.layout = layout_of(a.sizes, limit);
  config.gridDim = dim3(blocks_for(a.sizes.batch, a.sizes.sequences) * kRanks);
  WEFT_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a));
}

template <class T>
void launch(CudaQueue& queue, const DecodeBlocks& k) {
  Arguments<T> a = {};
  a.y = k.y.as<T>();
  a.sizes = sizes_of(k);
  a.scale = static_cast<float>(k.scale);
  a.qk = QkAngles(k.qk, k.qk_size);
  a.f = k.f;
  const T* x = k.x.as<T>();
  for (std::size_t first = 0; first < k.blocks.size(); first += kMostBlocks) {
    a.x = x;
    a.blocks = static_cast<int>(std::min<std::size_t>(kMostBlocks, k.blocks.size() - first));
    for (int i = 0; i < a.blocks; ++i)
      a.block[i] = block_of<T>(k.blocks[first + static_cast<std::size_t>(i)]);
    if (k.qk_size <= 64 && k.v_size <= 64)
      start(queue, cluster_kernel<T, 1, 1, 8, 4>, a);
    else if (k.qk_size <= 64)
      start(queue, cluster_kernel<T, 1, 2, 6, 3>, a);
    else
      start(queue, cluster_kernel<T, 2, 2, 4, 2>, a);
    x = a.y;
  }
}

bool aligned(const DecodeBlock& b) {
  for (const DecodeAffine* map : {&b.qkv, &b.proj, &b.up, &b.down})
    if (!aligned16(map->w, map->b)) return false;
  for (const DecodeNorm* norm : {&b.attention_norm, &b.mlp_norm})
    if (!aligned16(norm->w, norm->b)) return false;
  return aligned16(b.k, b.v);
}

// Longer lists take a thread block for each (sequence, head): AttentionDecode.
constexpr std::int64_t kLongestList = 256;

// An eighth of each GEMM must be whole tiles of 8 columns; inner axes are multiples of 64.
bool covers(const DecodeBlocks& k) {
  if (!reason_against_sm90a(k.x.dtype, compute_capability()).empty()) return false;
  if (k.first_key) return false;
  if (k.qk_size > 128 || k.v_size > 128 || k.qk_size % 8 != 0 || k.v_size % 8 != 0) return false;
  for (const TensorView* part : {&k.x, &k.packed, &k.attended, &k.hidden})
    if (part->cols() % 64 != 0 || part->cols() > 8192) return false;
  if (!aligned16(k.x, k.y, k.qk.table)) return false;
  for (const DecodeBlock& block : k.blocks)
    if (!aligned(block) || !block.content.empty() || block.longest == 0 || block.longest > kLongestList)
      return false;
  return most_sequences(sizes_of(k), shared_limit()) > 0;
}

}  // namespace
}  // namespace decode_cluster

void compute(CudaQueue& queue, const DecodeBlocks& k) {
  if (k.y.size() == 0) return;
  if (!decode_cluster::covers(k)) return run_in_steps(queue, k);
  if (k.x.dtype == DType::f16) return decode_cluster::launch<__half>(queue, k);
  decode_cluster::launch<__nv_bfloat16>(queue, k);
}

}  // namespace weft
