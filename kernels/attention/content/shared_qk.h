// SPDX-License-Identifier: MIT
// What attention within labels does besides attention: keys are made of queries, as in causal Reformers, and
// a query that finds no key before it sees its own value.
#pragma once

#include "kernels/attention/content/range.h"

namespace weft {

// k_j = q_j / max(|q_j|, 1e-6); with `normed` queries, whose length is fixed already, k_j = q_j.
struct SharedKeysForward {
  static constexpr const char* kName = "content_shared_keys_forward";
  HeadsView k;  // (B, T, H, D)  T
  HeadsView q;  // like k
  bool normed = false;
};
WEFT_KERNEL(SharedKeysForward);

// With u = q / |q|: dq += (dk - u (u . dk)) / |q|, then dk = 0: those columns made nothing.
struct SharedKeysBackward {
  static constexpr const char* kName = "content_shared_keys_backward";
  HeadsView dq, dk;  // (B, T, H, D)  T
  HeadsView q;
  bool normed = false;
};
WEFT_KERNEL(SharedKeysBackward);

// y_i = v_i where lse_i = -inf.
struct OwnValuesForward {
  static constexpr const char* kName = "content_own_values_forward";
  HeadsView y;     // (B, T, H, Dv)  T: of all heads of a layer
  HeadsView v;     // like y
  TensorView lse;  // (B, H, T)      wide(T)
  HeadRange heads;
};
WEFT_KERNEL(OwnValuesForward);

// dv_i += dy_i there.
struct OwnValuesBackward {
  static constexpr const char* kName = "content_own_values_backward";
  HeadsView dv;  // (B, T, H, Dv)  T
  HeadsView dy;
  TensorView lse;  // (B, H, T)  wide(T)
  HeadRange heads;
};
WEFT_KERNEL(OwnValuesBackward);

}  // namespace weft
