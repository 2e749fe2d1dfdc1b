// SPDX-License-Identifier: MIT
// Sampling: the keys that the query at *position sees, listed for AttentionDecode, and the state they come
// from. Positions follow each other; position 0 begins afresh.
#pragma once

#include "kernels/attention/content/range.h"

namespace weft {

// The last `w` members of each label are at members[n % w], n = 0, 1, ... The list is that of each round, one
// after the other; the own position where all are empty. Then the position becomes a member.
struct LabelList {
  static constexpr const char* kName = "content_label_list";
  TensorView list, count;        // (B, all heads, longest), (B, all heads)  i32: of heads in the range
  TensorView members, sizes;     // (R, B, H, G, w), (R, B, H, G)  i32
  TensorView labels;             // (R, B, H)  i32: of the position
  TensorView first_key;          // (B)  i32: no earlier key is seen; or absent
  const std::int32_t* position;  // in the queue's memory
  HeadRange heads;
};
WEFT_KERNEL(LabelList);

// The key joins the sum of its block, whose first query chooses (BlockChoice). The list: chosen blocks.
struct BlockList {
  static constexpr const char* kName = "content_block_list";
  TensorView list, count;  // as above
  TensorView sums;         // (B, H, D, blocks)  f32
  TensorView chosen;       // (B, H, K)          i32
  TensorView gates;        // (B, H, blocks)     f32: scratch
  HeadsView q, k;          // (B, 1, H, D)  T
  const std::int32_t* position;
  HeadRange heads;
  std::int64_t block = 64;
};
WEFT_KERNEL(BlockList);

// The state behind the first `count` positions of a text, for `texts` sequences from `first` on.
struct LabelFill {
  static constexpr const char* kName = "content_label_fill";
  TensorView members, sizes;  // of LabelList
  TensorView labels;          // (R, H, T)  i32
  std::int64_t first = 0, texts = 0, count = 0;
};
WEFT_KERNEL(LabelFill);
struct BlockFill {
  static constexpr const char* kName = "content_block_fill";
  TensorView sums, chosen;            // of BlockList
  TensorView text_sums, text_chosen;  // (H, D, blocks of T), (H, blocks of T, K): of BlockChoice
  std::int64_t first = 0, texts = 0, count = 0, block = 64;
};
WEFT_KERNEL(BlockFill);

}  // namespace weft
