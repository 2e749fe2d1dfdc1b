// SPDX-License-Identifier: MIT
// The backward pass of a forward pass.
#pragma once

#include "kernels/attention/attention.h"

namespace weft {

inline AttentionBackward backward_of(const AttentionForward& f, const HeadsView& dq, const HeadsView& dk,
                                     const HeadsView& dv, const TensorView& delta, const HeadsView& dy) {
  return {dq, dk, dv, delta, dy, f.y, f.lse, f.q, f.k, f.v, f.maps, f.scale, f.segments, f.form};
}

}  // namespace weft
