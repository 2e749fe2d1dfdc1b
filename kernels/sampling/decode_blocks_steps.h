// SPDX-License-Identifier: MIT
// DecodeBlocks as five launches a block: the definition, and CUDA's form for what no
// BlocksDecoder takes.
#pragma once

#include "kernels/sampling/decode_attention.h"
#include "kernels/sampling/decode_blocks.h"
#include "kernels/sampling/decode_linear.h"

namespace weft {
inline DecodeLinear affine_step(const TensorView& y, const TensorView& x, const DecodeAffine& map) {
  return {.y = y, .x = x, .w = map.w, .b = map.b, .residual = {}};
}

// (B, 1, M)
inline TensorView one_position(const TensorView& x) {
  return {x.data, x.dtype, 3, {x.rows(), 1, x.cols(), 1, 1}};
}

inline QkForward qk_step(const DecodeBlocks& k) {
  return {
      .qkv = one_position(k.packed),
      .rstd = {},
      .heads = k.heads,
      .qk_size = k.qk_size,
      .form = k.qk,
  };
}

inline AttentionDecode attention_step(const DecodeBlocks& k, const DecodeBlock& block) {
  const TensorView packed = one_position(k.packed);
  const int64_t queries = k.heads * k.qk_size;
  return {
      .y = heads_of(one_position(k.attended), 0, k.heads, k.v_size),
      .q = heads_of(packed, 0, k.heads, k.qk_size),
      .k = rows_of(block.k, k.heads),
      .v = rows_of(block.v, k.heads),
      .keys = block.keys,
      .key_start = block.key_start,
      .group_of_head = block.group_of_head,
      .scale = k.scale,
      .first_row = block.first_row,
      .new_k = heads_of(packed, queries, k.heads, k.qk_size),
      .new_v = heads_of(packed, 2 * queries, k.heads, k.v_size),
      .own_row = block.own_row,
      .longest = block.longest,
      .key_positions = block.key_positions,
      .first_key = k.first_key,
      .own_list = block.own_list,
      .own_count = block.own_count,
  };
}

template <class AnyQueue>
void run_in_steps(AnyQueue& queue, const DecodeBlocks& k) {
  TensorView x = k.x;
  const auto normed = [&](DecodeLinear step, const DecodeNorm& norm) {
    step.norm_w = norm.w, step.norm_b = norm.b, step.eps = norm.eps;
    return step;
  };
  for (const DecodeBlock& block : k.blocks) {
    run(queue, normed(affine_step(k.packed, x, block.qkv), block.attention_norm));
    if (block.list_keys) block.list_keys(queue, one_position(k.packed), false);
    if (k.qk) run(queue, qk_step(k));
    if (block.list_keys) block.list_keys(queue, one_position(k.packed), true);
    run(queue, attention_step(k, block));
    DecodeLinear proj = affine_step(k.y, k.attended, block.proj);
    proj.residual = x;  // of later blocks y itself, element by element
    run(queue, proj);
    DecodeLinear up = normed(affine_step(k.hidden, k.y, block.up), block.mlp_norm);
    up.f = k.f;
    run(queue, up);
    DecodeLinear down = affine_step(k.y, k.hidden, block.down);
    down.residual = k.y;
    run(queue, down);
    x = k.y;
  }
}
}  // namespace weft
