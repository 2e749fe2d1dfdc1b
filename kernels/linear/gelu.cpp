// SPDX-License-Identifier: MIT
// GEMM and GELU in one: the definition and the choice between the CUDA forms.
#include "kernels/linear/gelu.h"

#include "kernels/checks.h"
#include "kernels/form_reasons.h"
#include "kernels/linear/forms.h"

namespace weft {
namespace {

// Why `hopper` does not cover a case; empty where it does.
std::string reason_against_hopper(const LinearGeluCase& c) {
  constexpr std::int64_t kMostInner = 512;  // weights stay in registers
  if (const std::string why = reason_against_sm90a(c.dtype, c.compute_capability); !why.empty()) return why;
  if (c.inner > kMostInner) return str("its inner axis has at most ", kMostInner, " elements, got ", c.inner);
  if (c.inner % 8 != 0 || c.cols % 8 != 0 || !c.aligned)
    return str("rows must begin at multiples of 16 bytes; they have ", c.inner, " and ", c.cols, " elements");
  return "";
}

}  // namespace

const char* name_of(LinearGeluForm form) {
  switch (form) {
    case LinearGeluForm::automatic: return "automatic";
    case LinearGeluForm::composed: return "composed";
    case LinearGeluForm::hopper: return "hopper";
  }
  return "?";
}

LinearGeluForm choose_form(LinearGeluForm wanted, const LinearGeluCase& c) {
  if (wanted == LinearGeluForm::composed) return wanted;
  const std::string reason = reason_against_hopper(c);
  if (reason.empty()) return LinearGeluForm::hopper;
  WEFT_CHECK(wanted == LinearGeluForm::automatic, "linear_gelu: form hopper was asked for, but ", reason);
  return LinearGeluForm::composed;
}

LaunchCost LinearGeluForward::cost() const {
  return {.bytes = bytes_of({y, h, x, w, b}), .flops = linear_flops(x, w), .shape = linear_shape(x, w)};
}

LaunchCost LinearGeluBackward::cost() const {
  return {.bytes = bytes_of({dh, y, db.view, dy, w, h, b}),
          .flops = linear_flops(h, w),
          .shape = linear_shape(h, w)};
}

void check(const LinearGeluForward& k) {
  const std::int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.w.rows();
  const DType t = k.x.dtype;
  expect_floating(k.x, "linear_gelu_forward: x");
  WEFT_CHECK(inner > 0, "linear_gelu_forward: x needs at least one column, got ", shape_text(k.x));
  expect_matrix(k.w, t, cols, inner, "linear_gelu_forward: w");
  expect_matrix(k.y, t, rows, cols, "linear_gelu_forward: y");
  if (k.h) expect_matrix(k.h, t, rows, cols, "linear_gelu_forward: h");
  expect_size(k.b, t, cols, "linear_gelu_forward: b");
}

void check(const LinearGeluBackward& k) {
  const std::int64_t rows = k.dy.rows(), inner = k.dy.cols(), cols = k.w.cols();
  const DType t = k.dy.dtype;
  expect_floating(k.dy, "linear_gelu_backward: dy");
  WEFT_CHECK(inner > 0, "linear_gelu_backward: dy needs at least one column, got ", shape_text(k.dy));
  expect_matrix(k.w, t, inner, cols, "linear_gelu_backward: w");
  expect_matrix(k.h, t, rows, cols, "linear_gelu_backward: h");
  expect_matrix(k.dh, t, rows, cols, "linear_gelu_backward: dh");
  if (k.y) expect_matrix(k.y, t, rows, cols, "linear_gelu_backward: y");
  if (k.db) expect_size(k.db.view, wide(t), cols, "linear_gelu_backward: db");
  expect_size(k.b, t, cols, "linear_gelu_backward: b");
}

void run(CpuQueue& q, const LinearGeluForward& k) {
  check(k);
  linear_gelu::compose(q, k);
}

void run(CpuQueue& q, const LinearGeluBackward& k) {
  check(k);
  linear_gelu::compose(q, k);
}

}  // namespace weft
