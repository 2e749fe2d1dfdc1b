// SPDX-License-Identifier: MIT
// GEMM and activation in one: the definition and the choice between the CUDA forms.
#include "kernels/linear/activation.h"

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/forms.h"
#include "kernels/linear/forms.h"

#include <string>

namespace weft {
namespace {
// Why `hopper` does not cover a case; empty where it does.
std::string reason_against_hopper(const LinearActivationCase& c) {
  constexpr int64_t kMostInner = 512;  // weights stay in registers
  if (const std::string why = reason_against_sm90a(c.dtype, c.compute_capability); !why.empty())
    return why;
  if (c.inner > kMostInner)
    return str("its inner axis has at most ", kMostInner, " elements, got ", c.inner);
  if (c.inner % 8 != 0 || c.cols % 8 != 0 || !c.aligned)
    return str("rows must begin at multiples of 16 bytes; they have ", c.inner, " and ", c.cols,
               " elements");
  return "";
}
}  // namespace

const char* name_of(LinearActivationForm form) {
  constexpr const char* kNames[] = {"automatic", "composed", "hopper"};
  return kNames[static_cast<int>(form)];
}

LinearActivationForm choose_form(LinearActivationForm wanted, const LinearActivationCase& c) {
  if (wanted == LinearActivationForm::composed) return wanted;
  const std::string reason = reason_against_hopper(c);
  if (reason.empty()) return LinearActivationForm::hopper;
  WEFT_CHECK(wanted == LinearActivationForm::automatic,
             "linear_activation: form hopper was asked for, but ", reason);
  return LinearActivationForm::composed;
}

LaunchCost LinearActivationForward::cost() const {
  return {
      .bytes = bytes_of({y, h, x, w, b}),
      .flops = linear_flops(x, w),
      .shape = linear_shape(x, w),
  };
}

LaunchCost LinearActivationBackward::cost() const {
  return {
      .bytes = bytes_of({dh, y, db.view, dy, w, h, b}),
      .flops = linear_flops(h, w),
      .shape = linear_shape(h, w),
  };
}

void check(const LinearActivationForward& k) {
  const int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const DType t = k.x.dtype;
  expect_floating(k.x, "linear_activation_forward: x");
  WEFT_CHECK(inner > 0, "linear_activation_forward: x needs at least one column, got ",
             shape_text(k.x));
  expect_matrix(k.w, t, cols, inner, "linear_activation_forward: w");
  expect_matrix(k.y, t, rows, cols, "linear_activation_forward: y");
  if (k.h) expect_matrix(k.h, t, rows, cols, "linear_activation_forward: h");
  expect_size(k.b, t, cols, "linear_activation_forward: b");
}

void check(const LinearActivationBackward& k) {
  const int64_t rows = k.dy.rows(), inner = k.dy.cols(), cols = k.w.cols();
  const DType t = k.dy.dtype;
  expect_floating(k.dy, "linear_activation_backward: dy");
  WEFT_CHECK(inner > 0, "linear_activation_backward: dy needs at least one column, got ",
             shape_text(k.dy));
  expect_matrix(k.w, t, inner, cols, "linear_activation_backward: w");
  expect_matrix(k.h, t, rows, cols, "linear_activation_backward: h");
  expect_matrix(k.dh, t, rows, cols, "linear_activation_backward: dh");
  if (k.y) expect_matrix(k.y, t, rows, cols, "linear_activation_backward: y");
  if (k.db) expect_size(k.db.view, wide(t), cols, "linear_activation_backward: db");
  expect_size(k.b, t, cols, "linear_activation_backward: b");
}

void compute(CpuQueue& q, const LinearActivationForward& k) { linear_activation::compose(q, k); }

void compute(CpuQueue& q, const LinearActivationBackward& k) { linear_activation::compose(q, k); }
}  // namespace weft
