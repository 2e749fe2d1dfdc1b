// SPDX-License-Identifier: MIT
// Queries and keys before attention, in place in the packed projection: RMS norm of each head,
// without a weight (QK-norm, arXiv 2010.04245; RMS, arXiv 1910.07467), then rotary positions (arXiv
// 2104.09864, equation 34).
//   z = x rstd,  rstd = 1 / sqrt(mean(x^2) + eps)         over the Dqk features of a head
//   y[2i]     = z[2i] cos - z[2i + 1] sin                 cos, sin: of pair i at the row's place
//   y[2i + 1] = z[2i] sin + z[2i + 1] cos
//   dx = rstd * unrotate(dy - y mean(dy y))               so the backward pass needs y and rstd
// With a gain g of each head, which is not 0, queries are g y, and with d the gradient of g y:
//   dx = rstd * unrotate(g d - y mean(d g y)),   dg = sum of d g y / g over tokens and features
// Values are not touched.
#pragma once

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/queue.h"

#include <vector>

namespace weft {
// What is done to queries and keys; norm and rotation may each be absent. The place of row t of
// sequence b is one more than that of the token which the row holds (embedding.h):
//   t, or t + offsets[b]
//   with positions: positions[b, t - 1] + 1, and 0 for the first row
struct QkForm {
  bool norm = false;
  double eps = 1e-5;
  // (R, Dqk / 2, 2)  wide(T): cos and sin at place % R; absent: nothing is rotated
  TensorView table;
  TensorView offsets;    // (B)     i32 >= 0, or absent
  TensorView positions;  // (B, P)  i32 >= 0, P at least T; or absent; not together with offsets
  TensorView gain;       // (H)     wide(T), or absent; with a norm alone; decoding ignores it
  // Sampling: the number t of the first row, in the queue's memory; null: 0.
  const int32_t* first_at = nullptr;

  explicit operator bool() const { return norm || table; }
};

struct QkForward {
  static constexpr const char* kName = "qk_forward";
  // (B, T, 2 H Dqk + ...)  T: q and k by heads, replaced; then values
  TensorView qkv;
  TensorView rstd;                 // (B T, 2 H)  wide(T): of each query and key; absent: not kept
  int64_t heads = 0, qk_size = 0;  // H, Dqk: a multiple of 8, at most 256
  QkForm form;

  std::vector<TensorView> outputs() const { return {qkv, rstd}; }

  LaunchCost cost() const;  // v is neither read nor written
};

WEFT_KERNEL(QkForward);

struct QkBackward {
  static constexpr const char* kName = "qk_backward";
  TensorView dqkv;                 // as qkv: the gradients of y are replaced by those of x
  TensorView y;                    // as qkv, behind QkForward; with a norm alone
  TensorView rstd;                 // (B T, 2 H)  wide(T); with a norm alone
  int64_t heads = 0, qk_size = 0;  // H, Dqk
  QkForm form;
  GradView dgain;        // (H)       wide(T); with a gain alone
  TensorView row_dgain;  // (B T, H)  wide(T): scratch; with a gain alone

  std::vector<TensorView> outputs() const { return {dqkv}; }

  LaunchCost cost() const;
};

WEFT_KERNEL(QkBackward);
}  // namespace weft
