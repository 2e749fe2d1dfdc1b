// SPDX-License-Identifier: MIT
// The idea of rung 6, which rung 7 uses, too: a tile is a task, and threads take tasks.
#pragma once

#include "kernels/attention/ladder/ladder.h"

#include <cstdint>

namespace weft::ladder {
// Calls task(map, b, h, tile) for every tile of queries, or of keys, of every head; longest lists
// first. x: AttentionForward or AttentionBackward.
template <class X, class F>
void for_each_tile(const X& x, bool of_queries, F&& task) {
  const AttentionPass& pass = x.maps.pass[0];
  const int64_t most = of_queries ? pass.query_tiles : pass.key_tiles;
#pragma omp parallel for collapse(3) schedule(dynamic)
  for (int64_t b = 0; b < x.q.batch; ++b)
    for (int64_t rank = 0; rank < most; ++rank)
      for (int64_t h = 0; h < x.q.heads; ++h) {
        const TileMap& map = map_of(x, b, h);
        if (rank < (of_queries ? map.query_tiles : map.key_tiles))
          task(map, b, h, (of_queries ? map.row_schedule : map.col_schedule)[rank]);
      }
}
}  // namespace weft::ladder
