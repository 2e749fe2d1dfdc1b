// SPDX-License-Identifier: MIT
// The definition: block after block, in the steps that DecodeLinear and AttentionDecode define.
#include "kernels/sampling/decode_blocks.h"

#include "kernels/forms.h"
#include "kernels/sampling/decode_blocks_steps.h"
#include "kernels/view.h"

#include <vector>

namespace weft {
namespace {
void check(const DecodeNorm& norm, DType t, int64_t width, const char* what) {
  expect_size(norm.w, wide(t), width, what);
  expect_size(norm.b, wide(t), width, what);
}

void check(const DecodeAffine& map, DType t, int64_t out, int64_t in, const char* what) {
  expect_matrix(map.w, t, out, in, what);
  expect_size(map.b, t, out, what);
}

void check(const DecodeBlock& block, const DecodeBlocks& k) {
  const DType t = k.x.dtype;
  const int64_t width = k.x.cols(), hidden = k.hidden.cols();
  check(block.attention_norm, t, width, "decode_blocks: attention_norm");
  check(block.qkv, t, k.packed.cols(), width, "decode_blocks: qkv");
  check(block.proj, t, width, k.attended.cols(), "decode_blocks: proj");
  check(block.mlp_norm, t, width, "decode_blocks: mlp_norm");
  check(block.up, t, hidden, width, "decode_blocks: up");
  check(block.down, t, width, hidden, "decode_blocks: down");
  const int64_t batch = k.x.rows();
  WEFT_CHECK(block.k.rank == 3 && block.v.rank == 3 && block.k.shape[1] == block.v.shape[1],
             "decode_blocks: the cache must be (B, R, Dqk) and (B, R, Dv), got ",
             shape_text(block.k), " and ", shape_text(block.v));
  expect_matrix(block.k, t, batch * block.k.shape[1], k.qk_size, "decode_blocks: k");
  expect_matrix(block.v, t, batch * block.v.shape[1], k.v_size, "decode_blocks: v");
  WEFT_CHECK(
      block.keys && block.key_start && block.group_of_head && block.first_row && block.own_row,
      "decode_blocks: lists of keys are missing");
}
}  // namespace

void check(const DecodeBlocks& k) {
  const DType t = k.x.dtype;
  const int64_t batch = k.x.rows();
  expect_floating(k.x, "decode_blocks: x");
  WEFT_CHECK(!k.blocks.empty() && k.heads > 0 && k.qk_size > 0 && k.v_size > 0,
             "decode_blocks: needs blocks, heads and their sizes, got ", k.blocks.size(), ", ",
             k.heads, ", ", k.qk_size, " and ", k.v_size);
  expect_matrix(k.y, t, batch, k.x.cols(), "decode_blocks: y");
  expect_matrix(k.packed, t, batch, k.heads * (2 * k.qk_size + k.v_size), "decode_blocks: packed");
  expect_matrix(k.attended, t, batch, k.heads * k.v_size, "decode_blocks: attended");
  expect_matrix(k.hidden, t, batch, k.hidden.cols(), "decode_blocks: hidden");
  if (k.qk) check(qk_step(k));
  for (const DecodeBlock& block : k.blocks) check(block, k);
}

namespace {
std::vector<BlocksDecoder>& decoders() {
  static std::vector<BlocksDecoder> all;
  return all;
}
}  // namespace

void add_blocks_decoder(const BlocksDecoder& decoder) { decoders().push_back(decoder); }

const std::vector<BlocksDecoder>& blocks_decoders() {
  register_kernel_parts();
  return decoders();
}

int64_t prepared_bytes(const CpuQueue&, const DecodeBlocks&) { return 0; }

int64_t prepared_bytes(const CudaQueue&, const DecodeBlocks& k) {
  for (const BlocksDecoder& decoder : blocks_decoders())
    if (const int64_t bytes = decoder.prepared_bytes ? decoder.prepared_bytes(k) : 0) return bytes;
  return 0;
}

void prepare(CpuQueue&, const DecodeBlocks&) {
  fail("decode_blocks: the CPU form reads weights as they are");
}

void compute(CpuQueue& queue, const DecodeBlocks& k) {
  if (k.y.size() > 0) run_in_steps(queue, k);
}
}  // namespace weft
