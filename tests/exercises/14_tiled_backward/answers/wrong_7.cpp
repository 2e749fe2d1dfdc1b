// SPDX-License-Identifier: MIT
// Wrong: slots are taken for positions, which they are in some patterns.
// Rejected with: strided(stride 24), 200 positions: the task of query tile
#include "tests/exercises/14_tiled_backward/exercise.h"

#include <cmath>
#include <vector>

using weft::definition::add;
using weft::definition::dot;

namespace {
double weight(const Problem& problem, int64_t i, int64_t j) {
  return std::exp(problem.score(i, j) - problem.lse(i));
}

// The gradient of score (i, j).
double score_gradient(const Problem& problem, double p, int64_t i, int64_t j) {
  return p * (dot(problem.dy(i), problem.v(j)) - problem.delta(i));
}

// Which slots of the other side the own slot r meets in an entry.
uint64_t word_of(const std::vector<uint64_t>& masks, int64_t mask, int64_t edge, int64_t r) {
  return mask < 0 ? ~uint64_t{0} : masks[mask * edge + r];
}
}  // namespace

void dq_of_tile(const Problem& problem, const weft::TileTables& tables, int64_t query_tile,
                Matrix& dq) {
  const int64_t edge = tables.edge;
  const int32_t* queries = &tables.query_order[query_tile * edge];
  for (int64_t r = 0; r < edge; ++r) {
    const int64_t i = query_tile * edge + r;
    if (queries[r] < 0) continue;
    dq[i].assign(problem.q(i).size(), 0);
    for (int64_t e = tables.row_start[query_tile]; e < tables.row_start[query_tile + 1]; ++e) {
      const int32_t* keys = &tables.key_order[tables.row_tile[e] * edge];
      const uint64_t word = word_of(tables.masks, tables.row_mask[e], edge, r);
      for (int64_t c = 0; c < edge; ++c) {
        if ((word >> c & 1) == 0) continue;
        const double ds = score_gradient(problem, weight(problem, i, keys[c]), i, keys[c]);
        add(dq[i], problem.scale() * ds, problem.k(keys[c]));
      }
    }
  }
}

void dk_dv_of_tile(const Problem& problem, const weft::TileTables& tables, int64_t key_tile,
                   Matrix& dk, Matrix& dv) {
  const int64_t edge = tables.edge;
  const int32_t* keys = &tables.key_order[key_tile * edge];
  for (int64_t r = 0; r < edge; ++r) {
    const int64_t j = keys[r];
    if (j < 0) continue;
    dk[j].assign(problem.k(j).size(), 0);
    dv[j].assign(problem.v(j).size(), 0);
    for (int64_t e = tables.col_start[key_tile]; e < tables.col_start[key_tile + 1]; ++e) {
      const int32_t* queries = &tables.query_order[tables.col_tile[e] * edge];
      const uint64_t word = word_of(tables.masks_transposed, tables.col_mask[e], edge, r);
      for (int64_t c = 0; c < edge; ++c) {
        if ((word >> c & 1) == 0) continue;
        const int64_t i = queries[c];
        const double p = weight(problem, i, j);
        add(dv[j], p, problem.dy(i));
        add(dk[j], problem.scale() * score_gradient(problem, p, i, j), problem.q(i));
      }
    }
  }
}
