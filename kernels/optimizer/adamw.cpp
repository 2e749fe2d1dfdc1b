// SPDX-License-Identifier: MIT
// AdamW on the CPU: the definition. Threads take pieces of kChunk elements.
#include "kernels/optimizer/adamw.h"

#include "kernels/cpu.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {
// Elements [begin, end), all with the same weight decay. W is the type of the master weights.
template <class W>
void update(const AdamWUpdate& k, double weight_decay, int64_t begin, int64_t end) {
  W *p = k.master.as<W>(), *m = k.m.as<W>(), *v = k.v.as<W>();
  const W* gradients = k.gradients.as<W>();
  const W beta1 = static_cast<W>(k.beta1), rest1 = static_cast<W>(1 - k.beta1);
  const W beta2 = static_cast<W>(k.beta2), rest2 = static_cast<W>(1 - k.beta2);
  const W c1 = k.step->beta1_correction, c2 = k.step->beta2_correction, eps = static_cast<W>(k.eps);
  const W scale = k.results->update_scale, rate = k.step->learning_rate,
          decay = static_cast<W>(weight_decay);
  for (int64_t i = begin; i < end; ++i) {
    const W g = scale * gradients[i];
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    p[i] -= rate * ((m[i] / c1) / (std::sqrt(v[i] / c2) + eps) + decay * p[i]);
  }
  if (!k.ema) return;
  W* ema = k.ema.as<W>();
  const W kept = k.step->ema_decay;
  for (int64_t i = begin; i < end; ++i) ema[i] = kept * ema[i] + (1 - kept) * p[i];
}

template <class W>
void update_all(const AdamWUpdate& k) {
  const int64_t n = k.master.size();
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t end = std::min(n, begin + kChunk), split = std::clamp(k.decayed, begin, end);
    update<W>(k, k.weight_decay, begin, split);
    update<W>(k, 0, split, end);
    if (!k.compute) continue;
    dispatch_float(k.compute.dtype, [&]<class T>() {
      std::transform(k.master.as<W>() + begin, k.master.as<W>() + end, k.compute.as<T>() + begin,
                     [](W p) { return static_cast<T>(p); });
    });
  }
}
}  // namespace

void check(const AdamWUpdate& k) {
  const DType w = k.master.dtype;
  const int64_t n = k.master.size();
  expect_size(k.master, wide(w), n, "adamw_update: master");
  expect_size(k.m, w, n, "adamw_update: m");
  expect_size(k.v, w, n, "adamw_update: v");
  expect_size(k.gradients, w, n, "adamw_update: gradients");
  if (k.ema) expect_size(k.ema, w, n, "adamw_update: ema");
  if (k.compute) expect_floating(k.compute, "adamw_update: compute");
  if (k.compute) expect_size(k.compute, k.compute.dtype, n, "adamw_update: compute");
  WEFT_CHECK(k.decayed >= 0 && k.decayed <= n, "adamw_update: ", k.decayed, " decayed of ", n,
             " elements");
  WEFT_CHECK(k.step && k.results, "adamw_update: needs StepScalars and StepResults");
}

void compute(CpuQueue&, const AdamWUpdate& k) {
  if (k.results->update_scale == 0) return;
  k.master.dtype == DType::f64 ? update_all<double>(k) : update_all<float>(k);
}
}  // namespace weft
