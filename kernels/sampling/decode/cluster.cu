// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters for up to four sequences: the kernel, what it covers, its launch.
#include "kernels/sampling/decode/cluster_compute.cuh"
#include "kernels/sampling/decode/cluster_exchange.cuh"
#include "kernels/sampling/decode/cluster_launch.cuh"

namespace weft::decode_cluster {
namespace {
template <class T, int kWidth, int kRows>
__global__ void __launch_bounds__(threads<kRows>(), 1)
    decode_kernel(const __grid_constant__ Arguments<T> a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char shared[];
  BlockContext<T, kWidth, kRows> context(a, shared);
  run_block<BlockContext<T, kWidth, kRows>, Compute<T, kWidth, kRows>, Exchange<T, kWidth, kRows>,
            KeyStream<T, kWidth, kRows>>(context);
#endif
}

// Two stages of weights where they leave room for a layer's keys, `wanted` slots; keys take the
// rest.
template <class AnyContext>
Stages stages_for(int wanted) {
  Stages stages = {};
  for (const Stages& weights : {Stages{2, 2, 0}, {2, 1, 0}, {1, 1, 0}}) {
    const int slots = (shared_limit() - shared_bytes<AnyContext>(weights)) / AnyContext::kSlotBytes;
    stages = {weights.attention, weights.mlp, std::min(kMostSlots, slots)};
    if (slots >= std::min(kMostSlots, wanted)) break;
  }
  return stages;
}

// Slots that a rank's keys of a layer fill, two at least.
int slots_wanted(const DecodeBlocks& k) {
  const int64_t slots = (longest_share(k) + kSlotKeys - 1) / kSlotKeys;
  return static_cast<int>(std::clamp<int64_t>(slots * k.x.rows(), 2, kMostSlots));
}

Prepared prepared_for(const DecodeBlocks& k) {
  const int64_t width = k.x.cols(), rows = k.x.rows(), layers = std::ssize(k.blocks);
  if (width == 512) return {512, layers, rows * Packing<512>::kExchangeWords, Packing<512>::kBytes};
  return {256, layers, rows * Packing<256>::kExchangeWords, Packing<256>::kBytes};
}

template <class T, int kWidth, int kRows>
void start(CudaQueue& queue, const DecodeBlocks& k) {
  using AnyContext = BlockContext<T, kWidth, kRows>;
  const Stages stages = stages_for<AnyContext>(slots_wanted(k));
  const bool ahead = stages.attention == 2;
  start<AnyContext, T>(queue, decode_kernel<T, kWidth, kRows>, k, prepared_for(k), stages,
                       ahead ? Pace{600, 400, 1600} : Pace{300, 400, 800});
}

template <class T, int kWidth>
void start(CudaQueue& queue, const DecodeBlocks& k) {
  if (k.x.rows() == 1) return start<T, kWidth, 1>(queue, k);
  start<T, kWidth, kMostRows>(queue, k);
}

template <int kWidth>
bool fits_once() {
  using AnyContext = BlockContext<__nv_bfloat16, kWidth, kMostRows>;
  static const bool fits_here =
      fits<AnyContext>(decode_kernel<__nv_bfloat16, kWidth, kMostRows>, stages_for<AnyContext>(2));
  return fits_here;
}
}  // namespace

int64_t prepared_bytes(const DecodeBlocks& k) {
  if (k.x.rows() > kMostRows || k.x.rows() < 1 || !covers_model(k)) return 0;
  if (!(k.x.cols() == 512 ? fits_once<512>() : fits_once<256>())) return 0;
  return prepared_for(k).bytes;
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
