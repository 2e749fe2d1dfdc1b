// SPDX-License-Identifier: MIT
// AdamW on CUDA: one launch, four neighbouring elements a thread. Memory bandwidth bounds the
// kernel. Each element is read and written once, as part of a 16-byte access where all are aligned.
#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/weights.cuh"

namespace weft {
namespace {
constexpr int kThreads = 256, kGroup = 4;

template <class T>  // of the compute copy
struct Arguments {
  Weights<T> weights;
  float *m, *v;
  const float* gradients;
  const StepResults* results;
  int64_t size, decayed;
  float beta1, rest1, beta2, rest2, eps, weight_decay;  // rest = 1 - beta, rounded from f64
  // every tensor begins at a multiple of 16 bytes
  bool packed;
};

template <class T>
__global__ void __launch_bounds__(kThreads) update(const Arguments<T> a) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  const float scale = a.results->update_scale;
  if (first >= a.size || scale == 0.0f) return;
  const int64_t count = a.size - first;  // load() and store() leave out what lies behind the end
  const StepScalars& step = *a.weights.step;
  const float rate = step.learning_rate, c1 = step.beta1_correction, c2 = step.beta2_correction;
  float p[kGroup], m[kGroup], v[kGroup], g[kGroup];
  load(p, a.weights.master + first, count, a.packed);
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
  store(a.m + first, m, count, a.packed);
  store(a.v + first, v, count, a.packed);
  a.weights.put(first, p, count, a.packed);
}
}  // namespace

void compute(CudaQueue& q, const AdamWUpdate& k) {
  const int64_t n = k.master.size();
  if (n == 0) return;
  dispatch_cuda(k.compute ? k.compute.dtype : DType::f32, [&]<class T>() {
    Arguments<T> a = {
        {k.master.as<float>(), k.ema.or_null<float>(), k.compute.or_null<T>(), k.step},
        k.m.as<float>(),
        k.v.as<float>(),
        k.gradients.as<float>(),
        k.results};
    a.size = n, a.decayed = k.decayed;
    a.beta1 = static_cast<float>(k.beta1), a.rest1 = static_cast<float>(1 - k.beta1);
    a.beta2 = static_cast<float>(k.beta2), a.rest2 = static_cast<float>(1 - k.beta2);
    a.eps = static_cast<float>(k.eps), a.weight_decay = static_cast<float>(k.weight_decay);
    a.packed = aligned16(k.master, k.m, k.v, k.ema, k.compute, k.gradients);
    update<<<blocks_for(n, kThreads * kGroup), kThreads, 0, q.stream>>>(a);
  });
}
}  // namespace weft
