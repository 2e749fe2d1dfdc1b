// SPDX-License-Identifier: MIT
// How the Hopper kernels are started: head sizes to instantiations, tensors to the maps of a band,
// as many blocks as run at the same time.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/hopper/band/band.cuh"
#include "kernels/attention/launch.cuh"
#include "kernels/device/cuda.cuh"
#include "kernels/device/dependent_launch.cuh"
#include "kernels/device/warp_roles.cuh"

#include <algorithm>

namespace weft::attention::hopper {
using namespace device;

// select() asks first whether TMA takes the strides of the tensors.
inline constexpr const char* kTmaRefuses =
    "attention: TMA does not take these tensors, or the driver is older than CUDA 12";

// As attention::with_head_sizes(): the padded sizes that have a Hopper kernel.
template <class X, class F>
void with_head_sizes(const X& x, F&& f) {
  with_type(x, [&]<class T>() {
    if (x.q.size <= 64 && x.v.size <= 64) return f.template operator()<T, 64, 64>();
    if (x.q.size <= 64) return f.template operator()<T, 64, 128>();
    return f.template operator()<T, 128, 128>();
  });
}

template <class F>
void with_bool(bool flag, F&& f) {
  flag ? f.template operator()<true>() : f.template operator()<false>();
}

// Of a persistent kernel: one thread block a multiprocessor, at most one for each work item.
inline unsigned persistent_blocks(int64_t work_items) {
  WEFT_CHECK(work_items <= 0x7fffffff, "attention: ", work_items,
             " work items are more than one launch can take; lower the batch size");
  return static_cast<unsigned>(std::min<int64_t>(work_items, multiprocessors()));
}

// Starts a Kernel of kernels/device/warp_roles.cuh with as many thread blocks as run at a time.
template <class Kernel, class... Args>
void launch_persistent(CudaQueue& queue, int64_t work_items, const Args&... args) {
  constexpr int kBytes = kSharedBytes<typename Kernel::SharedStorage>;
  void (*const kernel)(Args...) = warp_specialized<Kernel, Args...>;
  attention::start(queue, kernel, persistent_blocks(work_items), Kernel::kThreads, kBytes, args...);
}

// The same, as launch_dependent() does it.
template <class Kernel, class... Args>
void launch_persistent_dependent(CudaQueue& queue, int64_t work_items, const Args&... args) {
  if (work_items == 0) return;
  constexpr int kBytes = kSharedBytes<typename Kernel::SharedStorage>;
  void (*const kernel)(Args...) = warp_specialized<Kernel, Args...>;
  allow_shared_memory(kernel, kBytes);
  launch_dependent(queue, kernel, {persistent_blocks(work_items), Kernel::kThreads, kBytes},
                   args...);
}

// What the forward kernels over bands take of a pass. Throws where TMA does not take the tensors.
inline BandForwardMaps forward_maps(const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps{
      .tiles = BandTiles::of(pass.band, pass.reaches, f.q),
      .lse = static_cast<float*>(f.lse.data),
      .scale = static_cast<float>(f.scale) * kLog2E,
  };
  const bool described = maps.describe(f.q, f.k, f.v, f.y);
  WEFT_CHECK(described || maps.tiles.launched_items() == 0, kTmaRefuses);
  return maps;
}
}  // namespace weft::attention::hopper
