// SPDX-License-Identifier: MIT
// How right results are that `bench` times: some rows of attention, recomputed from the definition.
#pragma once

#include "src/attention_maps.h"

#include <cstdint>

namespace weft {
// Everything one forward and backward pass read and wrote.
struct AttentionTensors {
  Tensor qkv, y, dy, dqkv;  // (B, T, H (2 Dqk + Dv)), (B, T, H Dv), likewise
  Tensor lse;               // (B, H, T) f32
  int64_t heads = 0, qk_size = 0, v_size = 0;
};

// Recomputes y, lse, dq, dk and dv at `rows` positions of a few heads and sequences, chosen by
// `seed`. Returns the largest error, relative to the largest number of the row, or to 0.5 where all
// are smaller.
double spot_check(Device&, const AttentionPattern&, const AttentionTensors&, int rows,
                  uint64_t seed);
}  // namespace weft
