// SPDX-License-Identifier: MIT
#include "kernels/attention/ladder/cuda/rungs.h"

#include "kernels/attention/select.h"
#include "kernels/forms.h"

#include <cstddef>
#include <span>

namespace weft::ladder {
namespace {
using namespace cuda;

// Builds without CUDA have the table, for what is told of the rungs, and no functions.
template <class F>
constexpr F* built(F* function) {
#ifdef WEFT_CUDA
  return function;
#else
  static_cast<void>(function);
  return nullptr;
#endif
}

// The rungs for any GPU; those whose code lies in the ladder or in the core.
constexpr std::size_t kOfAnyGpu = 9, kWithoutHopperPart = 10;
}  // namespace

std::span<const Rung> cuda_rungs() {
  static constexpr Rung rungs[] = {
      {"pairs", "one thread a query: the definition", "ladder/cuda/1_pairs.cu", 1321,
       Slots::in_order, built(pairs_forward), built(pairs_backward)},
      {"shared", "a block a tile: rows in shared memory, sums in registers",
       "ladder/cuda/2_shared.cu ladder/cuda/products.cuh", 2817, Slots::in_order,
       built(shared_forward), built(shared_backward)},
      {"tables", "tiles without a pair are skipped",
       "ladder/cuda/3_tables.cu ladder/cuda/products.cuh", 2913, Slots::in_order,
       built(tables_forward), built(tables_backward)},
      {"online", "online softmax: each tile once",
       "ladder/cuda/4_online.cu ladder/cuda/products.cuh", 2038, Slots::in_order,
       built(online_forward), nullptr},
      {"gathered", "slots in the pattern's order: fewer tiles",
       "ladder/cuda/5_gathered.cu ladder/cuda/products.cuh", 2929, Slots::of_pattern,
       built(gathered_forward), built(gathered_backward)},
      {"mma", "tensor cores; scores stay in registers",
       "ladder/cuda/6_mma.cu ladder/cuda/fragments.cuh", 2769, Slots::of_pattern,
       built(mma_forward), built(mma_backward)},
      {"async", "two stages: the next tile comes by cp.async",
       "ladder/cuda/7_async.cu ladder/cuda/fragments.cuh", 3027, Slots::of_pattern,
       built(async_forward), built(async_backward)},
      {"atomics", "backward, each tile once: dQ by float atomics",
       "ladder/cuda/8_atomics.cu ladder/cuda/fragments.cuh", 3002, Slots::of_pattern, nullptr,
       built(atomics_backward), false},
      {"ampere", "the real kernel of mma.sync, in two passes",
       "ampere/forward.cuh ampere/backward.cuh ampere/fragments.cuh ampere/mainloop.cuh", 7772,
       Slots::of_pattern, built(ampere_forward), built(ampere_backward)},
      {"wgmma", "wgmma and TMA, one warpgroup a block",
       "ladder/cuda/10_wgmma.cu ladder/cuda/fragments.cuh", 2459, Slots::of_pattern,
       built(wgmma_forward), nullptr},
      {"hopper", "the real kernel of wgmma: a producer and consumers",
       "hopper/forward.cu hopper/forward_mainloop.cuh hopper/softmax.cuh "
       "hopper/backward.cu hopper/key_stationary.cuh hopper/masks.cuh "
       "hopper/epilogue.cuh hopper/stream.cuh hopper/producer.cuh",
       15650, Slots::of_pattern, built(hopper_forward), built(hopper_backward)},
      {"fused", "backward, each tile once: dQ in a fixed order",
       "hopper/fused.cu hopper/fused_dq.cuh hopper/key_stationary.cuh hopper/masks.cuh "
       "hopper/epilogue.cuh hopper/stream.cuh hopper/producer.cuh",
       17648, Slots::of_pattern, nullptr, built(fused_backward)},
      {"band", "no tables: the pattern is a band",
       "hopper/band/forward.cuh hopper/band/forward_stream.cuh hopper/band/backward.cu "
       "hopper/band/backward_stream.cuh "
       "hopper/band/gradients.cuh hopper/band/band.cuh hopper/masks.cuh",
       12696, Slots::of_pattern, built(band_forward), built(band_backward)},
  };
  const std::span<const Rung> all = rungs;
  return attention::added_kernel(attention::Kernel::hopper) ? all : all.first(kWithoutHopperPart);
}

std::span<const Rung> rungs_of(int compute_capability) {
  if (compute_capability == 0) return cpu_rungs();
  const bool hopper = reason_against_sm90a(DType::bf16, compute_capability).empty();
  return hopper ? cuda_rungs() : cuda_rungs().first(kOfAnyGpu);
}
}  // namespace weft::ladder
