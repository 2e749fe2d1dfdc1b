// SPDX-License-Identifier: MIT
// Some rows of attention, recomputed in f64 from the definition, for shapes too long for the whole oracle.
#pragma once

#include "src/device.h"
#include "src/patterns/spec.h"

namespace weft {
// Everything one forward and backward pass read and wrote.
struct AttentionTensors {
  Tensor qkv, y, dy, dqkv;  // (B, T, H (2 Dqk + Dv)), (B, T, H Dv), likewise
  Tensor lse;               // (B, H, T) f32
  int64_t heads = 0, qk_size = 0, v_size = 0;
};

// Recomputes y, lse, dq, dk and dv at `rows` positions of a few heads and sequences, chosen by `seed`.
// Returns the largest error, relative to the largest number of the row, or to 0.5 where all are smaller.
double spot_check(Device&, const AttentionPattern&, const AttentionTensors&, int rows, uint64_t seed);
}  // namespace weft
