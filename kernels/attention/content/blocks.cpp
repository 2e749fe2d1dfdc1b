// SPDX-License-Identifier: MIT
#include "kernels/attention/check.h"
#include "kernels/attention/content/blocks_items.h"
#include "kernels/checks.h"

namespace weft {

void check(const BlockChoice& k) {
  const std::int64_t sets = k.q.batch * k.q.heads, blocks = (k.q.time + k.block - 1) / k.block;
  check_heads("k", k.k, k.q.batch, k.q.time, k.q.heads, k.q.size, k.q.dtype);
  WEFT_CHECK(k.block > 0 && k.q.size % 8 == 0 && k.chosen.rank == 4 && k.sums.rank == 4 &&
                 k.sums.shape[3] == blocks && k.count <= k.q.time,
             "block_choice: blocks of ", k.block, " for ", k.q.time, " positions and sums ",
             shape_text(k.sums));
  expect_size(k.sums, DType::f32, sets * k.q.size * blocks, "block_choice: sums");
  expect_size(k.gates, DType::f32, sets * blocks * blocks, "block_choice: gates");
  expect_size(k.chosen, DType::i32, sets * blocks * k.chosen.shape[3], "block_choice: chosen");
}

void check(const BlockMaps& k) {
  WEFT_CHECK(k.row_tile.rank == 2 && k.col_start.rank == 2 && k.chosen.rank == 3 && k.made && k.map &&
                 k.block % kTile == 0,
             "block_maps: blocks of ", k.block, ", chosen ", shape_text(k.chosen));
  const std::int64_t sets = k.chosen.shape[0];
  for (const TensorView& x : {k.row_tile, k.col_tile, k.col_mask})
    expect_matrix(x, DType::i32, sets, k.row_tile.shape[1], "block_maps: lists");
  expect_matrix(k.col_start, DType::i32, sets, k.col_start.shape[1], "block_maps: col_start");
}

void check(const PlaceMaps& k) {
  WEFT_CHECK(k.made && k.group_of_head && k.maps && k.batch > 0 && k.heads.count > 0 &&
                 k.heads.head(k.heads.count - 1) < k.all_heads,
             "place_maps: ", k.heads.count, " of ", k.all_heads, " heads");
}

void compute(CpuQueue& queue, const BlockChoice& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockMaps& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const PlaceMaps& k) { content::in_items(queue, k); }

}  // namespace weft
