// SPDX-License-Identifier: MIT
// The backward pass of attention, tile by tile.
#include "tests/exercises/14_tiled_backward/exercise.h"

void dq_of_tile(const Problem& problem, const weft::TileTables& tables, int64_t query_tile,
                Matrix& dq) {
  // yours
}

void dk_dv_of_tile(const Problem& problem, const weft::TileTables& tables, int64_t key_tile,
                   Matrix& dk, Matrix& dv) {
  // yours
}
