// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters for up to eight sequences: the kernel, what it covers, its launch.
#include "kernels/sampling/decode/cluster_launch.cuh"
#include "kernels/sampling/decode/eight_compute.cuh"
#include "kernels/sampling/decode/eight_exchange.cuh"
#include "kernels/sampling/decode/eight_streams.cuh"

namespace weft::decode_cluster {
namespace {
template <class T, int kWidth>
__global__ void __launch_bounds__(EightScene<T, kWidth>::kThreads, 1)
    eight_kernel(const __grid_constant__ Arguments<T> a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char shared[];
  EightScene<T, kWidth> scene(a, shared);
  run_block<EightScene<T, kWidth>, EightCompute<T, kWidth>, EightExchange<T, kWidth>,
            EightKeyStream<T, kWidth>>(scene);
#endif
}

// One stage of weights; keys take the rest.
template <class AnyScene>
Stages memory_of() {
  const int left = shared_limit() - shared_bytes<AnyScene>({1, 1, 0});
  return {1, 1, std::min(kEightSlots, left / AnyScene::kSlotBytes)};
}

Prepared prepared_for(const DecodeBlocks& k) {
  const int64_t layers = std::ssize(k.blocks);
  if (k.x.cols() == 512)
    return {512, layers, EightPacking<512>::kExchangeWords, Packing<512>::kBytes};
  return {256, layers, EightPacking<256>::kExchangeWords, Packing<256>::kBytes};
}

template <class T, int kWidth>
void start(CudaQueue& queue, const DecodeBlocks& k) {
  using AnyScene = EightScene<T, kWidth>;
  const Stages memory = memory_of<AnyScene>();
  Stages stages = memory;
  stages.keys = std::min(kSlotsOfText, memory.keys / static_cast<int>(k.x.rows()));
  start<AnyScene, T>(queue, eight_kernel<T, kWidth>, k, prepared_for(k), memory, stages,
                     Pace{300, 400, 100});
}

template <int kWidth>
bool fits_once() {
  using AnyScene = EightScene<__nv_bfloat16, kWidth>;
  static const bool fits_here = memory_of<AnyScene>().keys >= kTexts &&
                                fits<AnyScene>(eight_kernel<__nv_bfloat16, kWidth>,
                                               memory_of<AnyScene>());
  return fits_here;
}
}  // namespace

int64_t prepared_bytes_of_eight(const DecodeBlocks& k) {
  const int64_t texts = texts_of(k);
  if (texts <= kMostRows || texts > kTexts || k.x.rows() < 1 || !covers_model(k)) return 0;
  if (!(k.x.cols() == 512 ? fits_once<512>() : fits_once<256>())) return 0;
  return prepared_for(k).bytes;
}

bool covers_eight(const DecodeBlocks& k) {
  return k.prepared && k.x.rows() <= kTexts && covers_model(k) &&
         prepared_for(k).bytes == k.prepared.size();
}

void compute_eight(CudaQueue& queue, const DecodeBlocks& k) {
  const bool half = k.x.dtype == DType::f16;
  if (k.x.cols() == 512)
    return half ? start<__half, 512>(queue, k) : start<__nv_bfloat16, 512>(queue, k);
  return half ? start<__half, 256>(queue, k) : start<__nv_bfloat16, 256>(queue, k);
}
}  // namespace weft::decode_cluster
