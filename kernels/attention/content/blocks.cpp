// SPDX-License-Identifier: MIT
#include "kernels/attention/check.h"
#include "kernels/attention/content/blocks_items.h"

namespace weft {

void check(const BlockChoice& k) {
  const std::int64_t sets = k.q.batch * k.q.heads, blocks = (k.q.time + k.block - 1) / k.block;
  check_heads("k", k.k, k.q.batch, k.q.time, k.q.heads, k.q.size, k.q.dtype);
  expect_size(k.sums, DType::f32, sets * k.q.size * blocks, "content_block_choice: sums");
  expect_size(k.gates, DType::f32, sets * blocks * blocks, "content_block_choice: gates");
  expect_matrix(k.chosen, DType::i32, sets * blocks, k.chosen.cols(), "content_block_choice: chosen");
  WEFT_CHECK(k.count <= k.q.time && k.q.size % 8 == 0, "content_block_choice: ", k.count, " positions");
}

void check(const BlockMaps& k) {
  const std::int64_t sets = k.chosen.shape[0];
  for (const TensorView& x : {k.row_tile, k.col_tile, k.col_mask})
    expect_matrix(x, DType::i32, sets, k.row_tile.cols(), "content_block_maps: lists");
  expect_matrix(k.col_start, DType::i32, sets, k.col_start.cols(), "content_block_maps: col_start");
  WEFT_CHECK(k.made && k.map && k.block % kTile == 0, "content_block_maps: blocks of ", k.block);
}

void check(const PlaceMaps& k) {
  WEFT_CHECK(k.made && k.group_of_head && k.maps && k.heads.head(k.heads.count - 1) < k.all_heads,
             "content_place_maps: ", k.heads.count, " of ", k.all_heads, " heads");
}

void compute(CpuQueue& queue, const BlockChoice& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockMaps& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const PlaceMaps& k) { content::in_items(queue, k); }

}  // namespace weft
