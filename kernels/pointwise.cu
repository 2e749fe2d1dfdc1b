// SPDX-License-Identifier: MIT
// Elementwise kernels on CUDA: one thread for eight consecutive elements, in 16-byte loads where alignment
// allows.
#include <curand_kernel.h>

#include "kernels/cuda.cuh"
#include "kernels/philox.h"
#include "kernels/pointwise.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 8;  // elements of a thread, and of one Philox call

// body(first, count): the elements first .. first + min(8, count) - 1.
template <class Body>
__global__ void __launch_bounds__(kThreads) for_groups(std::int64_t n, Body body) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (first < n) body(first, n - first);
}

template <class Body>
void launch_groups(CudaQueue& q, std::int64_t n, const Body& body) {
  if (n == 0) return;
  for_groups<<<blocks_for(n, kThreads * kGroup), kThreads, 0, q.stream>>>(n, body);
}

template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + exp_for<T>(-x));
}

template <class T>
struct GeluForwardBody {
  T* y;
  const T* x;
  bool packed;
  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    constexpr float slope = static_cast<float>(kGeluSlope);
    float v[kGroup];
    load(v, x + first, count, packed);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) v[i] *= sigmoid<T>(slope * v[i]);
    store(y + first, v, count, packed);
  }
};

template <class T>
struct GeluBackwardBody {
  T* dx;
  const T *dy, *x;
  bool packed, accumulate;
  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    constexpr float slope = static_cast<float>(kGeluSlope);
    float v[kGroup], g[kGroup];
    load(v, x + first, count, packed);
    load(g, dy + first, count, packed);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float s = sigmoid<T>(slope * v[i]);
      g[i] *= s + slope * v[i] * s * (1.0f - s);
    }
    store(dx + first, g, count, packed, accumulate);
  }
};

template <class T>
struct DropoutBody {
  T* y;
  const T *x, *h;
  const StepScalars* step;
  std::uint32_t threshold, site;
  float scale;
  bool packed, accumulate;
  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    float v[kGroup];
    load(v, h + first, count, packed);
    if (threshold) {
      const std::uint64_t group = static_cast<std::uint64_t>(first) / kGroup, seed = step->seed;
      const uint4 counter = {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), site,
                             static_cast<std::uint32_t>(step->draw)};
      const uint4 bits = curand_Philox4x32_10(
          counter, uint2{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const std::uint32_t half_word = (words[i / 2] >> (16 * (i % 2))) & 0xffffu;
        v[i] = half_word >= threshold ? v[i] * scale : 0.0f;
      }
    }
    if (x) {
      float residual[kGroup];
      load(residual, x + first, count, packed);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) v[i] += residual[i];
    }
    store(y + first, v, count, packed, accumulate);
  }
};

template <class Y, class X>
struct CopyBody {
  Y* y;
  const X* x;
  bool packed, accumulate;
  __device__ void operator()(std::int64_t first, std::int64_t count) const {
    float v[kGroup];
    load(v, x + first, count, packed);
    store(y + first, v, count, packed, accumulate);
  }
};

}  // namespace

void run(CudaQueue& q, const GeluForward& k) {
  check(k);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    launch_groups(q, k.x.size(),
                  GeluForwardBody<T>{k.y.as<T>(), k.x.as<T>(), aligned16(k.y) && aligned16(k.x)});
  });
}

void run(CudaQueue& q, const GeluBackward& k) {
  check(k);
  const bool packed = aligned16(k.dx.view) && aligned16(k.dy) && aligned16(k.x);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    launch_groups(q, k.x.size(),
                  GeluBackwardBody<T>{k.dx.view.as<T>(), k.dy.as<T>(), k.x.as<T>(), packed, k.dx.accumulate});
  });
}

void run(CudaQueue& q, const Dropout& k) {
  check(k);
  const bool packed = aligned16(k.y.view) && aligned16(k.x) && aligned16(k.h);
  const std::uint32_t threshold = dropout_threshold(k.p);
  const auto scale = static_cast<float>(65536.0 / (65536.0 - threshold));
  dispatch_cuda(k.h.dtype, [&]<class T>() {
    launch_groups(q, k.h.size(),
                  DropoutBody<T>{k.y.view.as<T>(), k.x ? k.x.as<T>() : nullptr, k.h.as<T>(), k.step,
                                 threshold, k.site, scale, packed, k.y.accumulate});
  });
}

void run(CudaQueue& q, const Add& k) {
  check(k);
  const bool packed = aligned16(k.out.view) && aligned16(k.x);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    launch_groups(q, k.x.size(), CopyBody<T, T>{k.out.view.as<T>(), k.x.as<T>(), packed, k.out.accumulate});
  });
}

void run(CudaQueue& q, const Cast& k) {
  check(k);
  const bool packed = aligned16(k.y) && aligned16(k.x);
  dispatch_cuda(k.y.dtype, [&]<class Y>() {
    dispatch_cuda(k.x.dtype, [&]<class X>() {
      launch_groups(q, k.x.size(), CopyBody<Y, X>{k.y.as<Y>(), k.x.as<X>(), packed, false});
    });
  });
}

}  // namespace weft
