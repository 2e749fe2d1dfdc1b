// SPDX-License-Identifier: MIT
// Softmax cross-entropy: the definition. Rows in parallel.
#include "kernels/layers/cross_entropy.h"

#include "kernels/cpu.h"

#include <cmath>

namespace weft {
namespace {
template <class T>
void forward(const CrossEntropyForward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.logits.rows(), vocab = k.logits.cols();
  const T* logits = k.logits.as<T>();
  const auto* targets = k.targets.as<int32_t>();
  W *loss = k.loss.as<W>(), *lse = k.lse.as<W>();
#pragma omp parallel for schedule(static) if (rows * vocab > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    const T* row = logits + n * vocab;
    const W largest = max_of<W>(vocab, [=](int64_t v) { return static_cast<W>(row[v]); });
    const W sum =
        sum_of<W>(vocab, [=](int64_t v) { return exp_of(static_cast<W>(row[v]) - largest); });
    lse[n] = largest + std::log(sum);
    loss[n] = targets[n] < 0 ? W{0} : lse[n] - static_cast<W>(row[targets[n]]);
  }
}

template <class T>
void backward(const CrossEntropyBackward& k) {
  using W = wide_t<T>;
  const int64_t rows = k.logits.rows(), vocab = k.logits.cols();
  const T* logits = k.logits.as<T>();
  const auto* targets = k.targets.as<int32_t>();
  const W *dloss = k.dloss.as<W>(), *lse = k.lse.as<W>();
  T* dlogits = k.dlogits.view.as<T>();
  const bool accumulate = k.dlogits.accumulate;
#pragma omp parallel for schedule(static) if (rows * vocab > kParallelElements)
  for (int64_t n = 0; n < rows; ++n) {
    const bool ignored = targets[n] < 0;
    const W scale = dloss[n], row_lse = lse[n];
    for (int64_t v = 0; v < vocab; ++v) {
      const int64_t i = n * vocab + v;
      const W p = exp_of(static_cast<W>(logits[i]) - row_lse);
      store(dlogits, i, ignored ? W{0} : scale * (p - (v == targets[n] ? W{1} : W{0})), accumulate);
    }
  }
}
}  // namespace

void check(const CrossEntropyForward& k) {
  const int64_t rows = k.logits.rows();
  const DType w = wide(k.logits.dtype);
  expect_floating(k.logits, "cross_entropy_forward: logits");
  WEFT_CHECK(k.logits.cols() > 0, "cross_entropy_forward: logits need a last axis, got ",
             shape_text(k.logits));
  expect_size(k.loss, w, rows, "cross_entropy_forward: loss");
  expect_size(k.lse, w, rows, "cross_entropy_forward: lse");
  expect_size(k.targets, DType::i32, rows, "cross_entropy_forward: targets");
}

void check(const CrossEntropyBackward& k) {
  const int64_t rows = k.logits.rows();
  const DType w = wide(k.logits.dtype);
  expect_floating(k.logits, "cross_entropy_backward: logits");
  WEFT_CHECK(k.logits.cols() > 0, "cross_entropy_backward: logits need a last axis, got ",
             shape_text(k.logits));
  expect_size(k.dloss, w, rows, "cross_entropy_backward: dloss");
  expect_size(k.lse, w, rows, "cross_entropy_backward: lse");
  expect_size(k.targets, DType::i32, rows, "cross_entropy_backward: targets");
  expect_matrix(k.dlogits.view, k.logits.dtype, rows, k.logits.cols(),
                "cross_entropy_backward: dlogits");
}

void compute(CpuQueue&, const CrossEntropyForward& k) {
  dispatch_float(k.logits.dtype, [&]<class T>() { forward<T>(k); });
}

void compute(CpuQueue&, const CrossEntropyBackward& k) {
  dispatch_float(k.logits.dtype, [&]<class T>() { backward<T>(k); });
}
}  // namespace weft
