// SPDX-License-Identifier: MIT
// The shell of a kernel whose warpgroups have roles: shared memory, barriers, registers, and who
// runs what. Loops belong to the roles.
#pragma once

#include "kernels/device/named_barrier.cuh"
#include "kernels/device/storage.cuh"
#include "kernels/device/wgmma.cuh"

namespace weft::device {
// Registers a thread of each role, multiples of 8; of all warpgroups together at most 512. extra:
// of a third role, 0 where there is none.
struct RegisterSplit {
  int producer, consumer, extra = 0;
};

// Kernel has
//   Params          what a launch gives it
//   SharedStorage   its shared memory
//   kThreads        of a thread block
//   kRegisters      a RegisterSplit
//   init(SharedStorage&, Params)         all threads: barriers, with a __syncthreads() at the end
//   produce(SharedStorage&, Params)      the first warpgroup
//   consume(SharedStorage&, Params)      the others
//   consume_extra(SharedStorage&, Params)  the last, where kRegisters has an extra role
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    warp_specialized(const __grid_constant__ typename Kernel::Params params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr RegisterSplit kRegisters = Kernel::kRegisters;
  constexpr int kGroups = Kernel::kThreads / kWarpgroup;
  static_assert(kRegisters.producer + kRegisters.consumer * (kGroups - 1 - (kRegisters.extra > 0)) +
                        kRegisters.extra <=
                    512,
                "more registers than a multiprocessor has");
  extern __shared__ __align__(128) char raw[];
  auto& storage = shared_storage<typename Kernel::SharedStorage>(raw);
  Kernel::init(storage, params);
  if constexpr (kRegisters.extra == 0) {
    if (threadIdx.x < kWarpgroup) {
      setmaxnreg_dec<kRegisters.producer>();
      Kernel::produce(storage, params);
    } else {
      setmaxnreg_inc<kRegisters.consumer>();
      Kernel::consume(storage, params);
    }
  } else {
    const int group = warp_uniform(warpgroup_index());
    if (group == 0) {
      setmaxnreg_dec<kRegisters.producer>();
      Kernel::produce(storage, params);
    } else if (group == kGroups - 1) {
      setmaxnreg_dec<kRegisters.extra>();
      Kernel::consume_extra(storage, params);
    } else {
      setmaxnreg_inc<kRegisters.consumer>();
      Kernel::consume(storage, params);
    }
  }
#endif
}
}  // namespace weft::device
