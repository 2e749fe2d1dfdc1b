// SPDX-License-Identifier: MIT
// A query tile meets the key tiles of its list; orders turn slots into positions.
#include "tests/exercises/07_skip_tiles/exercise.h"

Matrix attend(const Problem& problem, const weft::TileTables& tables) {
  const int64_t edge = tables.edge;
  Matrix y(problem.positions());
  for (int64_t query_tile = 0; query_tile < tables.query_tiles(); ++query_tile) {
    const int32_t* queries = &tables.query_order[query_tile * edge];
    std::vector<Softmax> rows(edge, Softmax(problem.size()));
    for (int64_t e = tables.row_start[query_tile]; e < tables.row_start[query_tile + 1]; ++e) {
      const int32_t* keys = &tables.key_order[tables.row_tile[e] * edge];
      const int64_t mask = tables.row_mask[e];
      for (int64_t r = 0; r < edge; ++r) {
        const uint64_t word = mask < 0 ? ~uint64_t{0} : tables.masks[mask * edge + r];
        for (int64_t c = 0; c < edge; ++c)
          if (word >> c & 1)
            rows[r].add(problem.score(queries[r], keys[c]), problem.value(keys[c]));
      }
    }
    for (int64_t r = 0; r < edge; ++r)
      if (queries[r] >= 0) y[queries[r]] = rows[r].result();
  }
  return y;
}
