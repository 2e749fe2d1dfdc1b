// SPDX-License-Identifier: MIT
// AdamW on CUDA: one launch, four neighbouring elements a thread. The kernel is bound by memory bandwidth: it
// reads and writes each element once, in 16-byte packs where every tensor is aligned.
#include "kernels/device/cuda.cuh"
#include "kernels/optimizer/adamw.h"

namespace weft {
namespace {

constexpr int kThreads = 256, kGroup = 4;

template <class T>  // of the compute copy
struct Arguments {
  float *master, *m, *v, *ema;  // ema may be null
  T* compute;                   // may be null
  const float* gradients;
  const StepScalars* step;
  const StepResults* results;
  std::int64_t size, decayed;
  float beta1, rest1, beta2, rest2, eps, weight_decay;  // rest = 1 - beta, rounded from f64
  bool packed;                                          // every tensor begins at a multiple of 16 bytes
};

template <class T>
__global__ void __launch_bounds__(kThreads) update(const Arguments<T> a) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  const float scale = a.results->update_scale;
  if (first >= a.size || scale == 0.0f) return;
  const std::int64_t count = a.size - first;  // load() and store() leave out what lies behind the end
  const float rate = a.step->learning_rate, c1 = a.step->beta1_correction, c2 = a.step->beta2_correction;
  float p[kGroup], m[kGroup], v[kGroup], g[kGroup];
  load(p, a.master + first, count, a.packed);
  load(m, a.m + first, count, a.packed);
  load(v, a.v + first, count, a.packed);
  load(g, a.gradients + first, count, a.packed);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    g[i] *= scale;
    m[i] = a.beta1 * m[i] + a.rest1 * g[i];
    v[i] = a.beta2 * v[i] + a.rest2 * g[i] * g[i];
    const float direction = (m[i] / c1) / (sqrtf(v[i] / c2) + a.eps);
    p[i] -= rate * (direction + (first + i < a.decayed ? a.weight_decay : 0.0f) * p[i]);
  }
  store(a.master + first, p, count, a.packed);
  store(a.m + first, m, count, a.packed);
  store(a.v + first, v, count, a.packed);
  if (a.compute) store(a.compute + first, p, count, a.packed);
  if (!a.ema) return;
  float ema[kGroup];
  load(ema, a.ema + first, count, a.packed);
  const float kept = a.step->ema_decay;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) ema[i] = kept * ema[i] + (1.0f - kept) * p[i];
  store(a.ema + first, ema, count, a.packed);
}

}  // namespace

void run(CudaQueue& q, const AdamWUpdate& k) {
  check(k);
  const std::int64_t n = k.master.size();
  if (n == 0) return;
  dispatch_cuda(k.compute ? k.compute.dtype : DType::f32, [&]<class T>() {
    Arguments<T> a = {k.master.as<float>(), k.m.as<float>(), k.v.as<float>()};
    a.ema = k.ema.or_null<float>();
    a.compute = k.compute.or_null<T>();
    a.gradients = k.gradients.as<float>();
    a.step = k.step, a.results = k.results;
    a.size = n, a.decayed = k.decayed;
    a.beta1 = static_cast<float>(k.beta1), a.rest1 = static_cast<float>(1 - k.beta1);
    a.beta2 = static_cast<float>(k.beta2), a.rest2 = static_cast<float>(1 - k.beta2);
    a.eps = static_cast<float>(k.eps), a.weight_decay = static_cast<float>(k.weight_decay);
    a.packed = aligned16(k.master) && aligned16(k.m) && aligned16(k.v) && aligned16(k.ema) &&
               aligned16(k.compute) && aligned16(k.gradients);
    update<<<blocks_for(n, kThreads * kGroup), kThreads, 0, q.stream>>>(a);
  });
}

}  // namespace weft
