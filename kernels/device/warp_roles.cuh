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
//   SharedStorage   its shared memory
//   kThreads        of a thread block
//   kRegisters      a RegisterSplit
// and static functions of SharedStorage& and of the arguments of the launch, which stay in constant
// memory one by one: in one struct, the compiler joins their loads and spills.
//   init()          all threads: barriers, with a __syncthreads() at the end
//   produce()       the first warpgroup
//   consume()       the others
//   consume_extra() the last, where kRegisters has an extra role
template <class Kernel, class... Args>
__device__ __forceinline__ void run_roles(const Args&... args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr RegisterSplit kRegisters = Kernel::kRegisters;
  constexpr int kGroups = Kernel::kThreads / kWarpgroup;
  static_assert(kRegisters.producer + kRegisters.consumer * (kGroups - 1 - (kRegisters.extra > 0)) +
                        kRegisters.extra <=
                    512,
                "more registers than a multiprocessor has");
  extern __shared__ __align__(128) char raw[];
  auto& storage = shared_storage<typename Kernel::SharedStorage>(raw);
  Kernel::init(storage, args...);
  if constexpr (kRegisters.extra == 0) {
    if (threadIdx.x < kWarpgroup) {
      setmaxnreg_dec<kRegisters.producer>();
      Kernel::produce(storage, args...);
    } else {
      setmaxnreg_inc<kRegisters.consumer>();
      Kernel::consume(storage, args...);
    }
  } else {
    const int group = warp_uniform(warpgroup_index());
    if (group == 0) {
      setmaxnreg_dec<kRegisters.producer>();
      Kernel::produce(storage, args...);
    } else if (group == kGroups - 1) {
      setmaxnreg_dec<kRegisters.extra>();
      Kernel::consume_extra(storage, args...);
    } else {
      setmaxnreg_inc<kRegisters.consumer>();
      Kernel::consume(storage, args...);
    }
  }
#endif
}

// The entries: a parameter pack has no address that GCC finds.
template <class Kernel, class A>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    warp_specialized(const __grid_constant__ A a) {
  run_roles<Kernel>(a);
}

template <class Kernel, class A, class B>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    warp_specialized(const __grid_constant__ A a, const __grid_constant__ B b) {
  run_roles<Kernel>(a, b);
}

template <class Kernel, class A, class B, class C>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    warp_specialized(const __grid_constant__ A a, const __grid_constant__ B b,
                     const __grid_constant__ C c) {
  run_roles<Kernel>(a, b, c);
}

template <class Kernel, class A, class B, class C, class D>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    warp_specialized(const __grid_constant__ A a, const __grid_constant__ B b,
                     const __grid_constant__ C c, const __grid_constant__ D d) {
  run_roles<Kernel>(a, b, c, d);
}
}  // namespace weft::device
