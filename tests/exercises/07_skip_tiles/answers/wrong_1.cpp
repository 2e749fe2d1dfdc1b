// SPDX-License-Identifier: MIT
// Wrong: slots are taken for positions, which they are in some patterns.
// Rejected with: positions in another order: strided
#include "tests/exercises/07_skip_tiles/exercise.h"

Matrix attend(const Problem& problem, const weft::TileTables& tables) {
  const int64_t edge = tables.edge;
  Matrix y(problem.positions());
  for (int64_t query_tile = 0; query_tile < tables.query_tiles(); ++query_tile) {
    std::vector<Softmax> rows(edge, Softmax(problem.size()));
    for (int64_t e = tables.row_start[query_tile]; e < tables.row_start[query_tile + 1]; ++e) {
      const int64_t key_tile = tables.row_tile[e];
      const int64_t mask = tables.row_mask[e];
      for (int64_t r = 0; r < edge; ++r) {
        const uint64_t word = mask < 0 ? ~uint64_t{0} : tables.masks[mask * edge + r];
        for (int64_t c = 0; c < edge; ++c) {
          const int64_t i = query_tile * edge + r, j = key_tile * edge + c;
          if (word >> c & 1) rows[r].add(problem.score(i, j), problem.value(j));
        }
      }
    }
    for (int64_t r = 0; r < edge && query_tile * edge + r < problem.positions(); ++r)
      y[query_tile * edge + r] = rows[r].result();
  }
  return y;
}
