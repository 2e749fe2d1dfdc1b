// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/sampling/decode_attention.h"

namespace weft {
// What one (batch, head) reads.
struct DecodeList {
  const int32_t* keys;
  int32_t count;

  constexpr DecodeList(const AttentionDecode& d, int64_t b, int64_t h)
      : keys(d.keys + d.key_start[d.group_of_head[h]]),
        count(d.key_start[d.group_of_head[h] + 1] - d.key_start[d.group_of_head[h]]) {
    const auto* counts = static_cast<const int32_t*>(d.own_count.data);
    if (!counts || counts[b * d.q.heads + h] < 0) return;
    count = counts[b * d.q.heads + h];
    keys = static_cast<const int32_t*>(d.own_list.data) + (b * d.q.heads + h) * d.own_list.shape[2];
  }
};
}  // namespace weft
