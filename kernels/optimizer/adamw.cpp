// SPDX-License-Identifier: MIT
// AdamW: the definition. Elementwise, in pieces of kChunk.
#include "kernels/optimizer/adamw.h"

#include <algorithm>
#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu.h"

namespace weft {
namespace {

template <class W>
struct Block {  // the flat arrays; ema may be null
  W *master, *m, *v, *ema;
  const W* gradients;
};

// Elements [begin, end) with one weight decay.
template <class W>
void update(const AdamWUpdate& k, const Block<W>& a, W decay, std::int64_t begin, std::int64_t end) {
  const W scale = k.results->update_scale, rate = k.step->learning_rate;
  const W c1 = k.step->beta1_correction, c2 = k.step->beta2_correction, eps = static_cast<W>(k.eps);
  const W beta1 = static_cast<W>(k.beta1), rest1 = static_cast<W>(1 - k.beta1);
  const W beta2 = static_cast<W>(k.beta2), rest2 = static_cast<W>(1 - k.beta2);
  for (std::int64_t i = begin; i < end; ++i) {
    const W g = scale * a.gradients[i];
    a.m[i] = beta1 * a.m[i] + rest1 * g;
    a.v[i] = beta2 * a.v[i] + rest2 * g * g;
    const W direction = (a.m[i] / c1) / (std::sqrt(a.v[i] / c2) + eps);
    a.master[i] -= rate * (direction + decay * a.master[i]);
  }
  if (!a.ema) return;
  const W kept = k.step->ema_decay, fresh = 1 - kept;
  for (std::int64_t i = begin; i < end; ++i) a.ema[i] = kept * a.ema[i] + fresh * a.master[i];
}

template <class W>
void update_all(const AdamWUpdate& k) {
  const std::int64_t n = k.master.size();
  const Block<W> a = {k.master.as<W>(), k.m.as<W>(), k.v.as<W>(), k.ema ? k.ema.as<W>() : nullptr,
                      k.gradients.as<W>()};
#pragma omp parallel for schedule(static) if (n > kParallelElements)
  for (std::int64_t p = 0; p < chunks_of(n); ++p) {
    const std::int64_t begin = p * kChunk, end = std::min(n, begin + kChunk);
    const std::int64_t split = std::clamp(k.decayed, begin, end);
    update(k, a, static_cast<W>(k.weight_decay), begin, split);
    update(k, a, W{0}, split, end);
    if (!k.compute) continue;
    dispatch_float(k.compute.dtype, [&]<class T>() {
      T* out = static_cast<T*>(k.compute.data);
      for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(a.master[i]);
    });
  }
}

}  // namespace

void check(const AdamWUpdate& k) {
  const DType w = k.master.dtype;
  const std::int64_t n = k.master.size();
  expect_floating(k.master, "adamw_update: master");
  WEFT_CHECK(w == wide(w), "adamw_update: master must be f32 or f64, got ", name_of(w));
  expect_size(k.m, w, n, "adamw_update: m");
  expect_size(k.v, w, n, "adamw_update: v");
  expect_size(k.gradients, w, n, "adamw_update: gradients");
  if (k.ema) expect_size(k.ema, w, n, "adamw_update: ema");
  if (k.compute) {
    expect_floating(k.compute, "adamw_update: compute");
    expect_size(k.compute, k.compute.dtype, n, "adamw_update: compute");
  }
  WEFT_CHECK(k.decayed >= 0 && k.decayed <= n, "adamw_update: ", k.decayed, " decayed of ", n, " elements");
  WEFT_CHECK(k.step && k.results, "adamw_update: needs StepScalars and StepResults");
}

void run(CpuQueue&, const AdamWUpdate& k) {
  check(k);
  if (k.results->update_scale == 0) return;
  if (k.master.dtype == DType::f64) {
    update_all<double>(k);
  } else {
    update_all<float>(k);
  }
}

}  // namespace weft
