// SPDX-License-Identifier: MIT
// Attention in sampling: one query per sequence against a cache of keys and values; and filling the
// cache.
#pragma once

#include "kernels/attention/attention.h"

namespace weft {
// Reads only the listed rows of the cache.
struct AttentionDecode {
  static constexpr const char* kName = "attention_decode";
  HeadsView y;  // (B, 1, H, Dv)   T
  HeadsView q;  // (B, 1, H, Dqk)  T
  HeadsView k;  // (B, R, H, Dqk)  T: the cache, R rows
  HeadsView v;  // (B, R, H, Dv)   T
  // rows of the cache, group after group, in the queue's memory
  const int32_t* keys = nullptr;
  const int32_t* key_start = nullptr;      // (groups + 1)
  const int32_t* group_of_head = nullptr;  // (H)
  double scale = 1;
  // (H): added to the rows of a head's list, where heads share a list; null: 0.
  const int32_t* first_row = nullptr;
  // Key and value of the current position, or absent; first written to row own_row[h] of the cache
  // (-1: nowhere). Rows of different heads must not overlap.
  HeadsView new_k{};                 // (B, 1, H, Dqk)  T
  HeadsView new_v{};                 // (B, 1, H, Dv)   T
  const int32_t* own_row = nullptr;  // (H)  in the queue's memory
  // No list is longer; 0: unknown. The kernel just before must not write cache and lists: CUDA
  // prefetches.
  int64_t longest = 0;
  // Positions of the listed rows: a sequence sees those of its document, from first_key (B) i32 on.
  // Or none.
  const int32_t* key_positions = nullptr;
  TensorView first_key{};
  // Where own_count of a sequence and head is not negative, its list is as long and begins at
  // own_list. Absent: all lists are those of groups. Without first_key.
  TensorView own_list{}, own_count{};  // (B, H, places), (B, H)  i32
};

WEFT_KERNEL(AttentionDecode);

// Fills a cache from keys or values that one pass has computed for a whole prompt:
//   y[b, r] = x[0, source[r] / H, source[r] % H], or stays as it is where source[r] = -1
struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  TensorView y;                     // (B, R, D)     T: the cache of B texts with this prompt
  HeadsView x;                      // (1, T, H, D)  T, T * H < 2^31
  const int32_t* source = nullptr;  // (R)  in the queue's memory
};

WEFT_KERNEL(GatherRows);
}  // namespace weft
