// SPDX-License-Identifier: MIT
// Wrong: tiles are skipped, but every pair of a visited tile is taken.
// Rejected with: tiles in the order of positions: all
#include "tests/exercises/07_skip_tiles/exercise.h"

Matrix attend(const Problem& problem, const weft::TileTables& tables) {
  const int64_t edge = tables.edge;
  Matrix y(problem.positions());
  for (int64_t query_tile = 0; query_tile < tables.query_tiles(); ++query_tile) {
    const int32_t* queries = &tables.query_order[query_tile * edge];
    std::vector<Softmax> rows(edge, Softmax(problem.size()));
    for (int64_t e = tables.row_start[query_tile]; e < tables.row_start[query_tile + 1]; ++e) {
      const int32_t* keys = &tables.key_order[tables.row_tile[e] * edge];
      for (int64_t r = 0; r < edge; ++r) {
        for (int64_t c = 0; c < edge; ++c)
          if (queries[r] >= 0 && keys[c] >= 0)
            rows[r].add(problem.score(queries[r], keys[c]), problem.value(keys[c]));
      }
    }
    for (int64_t r = 0; r < edge; ++r)
      if (queries[r] >= 0) y[queries[r]] = rows[r].result();
  }
  return y;
}
