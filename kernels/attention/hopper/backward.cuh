// SPDX-License-Identifier: MIT
// Backward attention on Hopper without atomics: in one walk over columns where there is scratch for it, else
// in two, dQ by rows, dK and dV by columns.
#pragma once

#include "kernels/attention/hopper/fused.cuh"
#include "kernels/attention/hopper/key_stationary.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/query_stationary.cuh"

namespace weft::attention::hopper {

template <class T>
void launch_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  if (launch_fused<T>(queue, g, pass)) return;
  with_head_sizes(g.q.size, g.v.size, [&]<int Dqk, int Dv>() {
    Boxes by_rows{}, by_columns{};
    const bool described = describe(by_rows, pass.query_run, g.q, g.dy, pass.key_run, g.k, g.v) &&
                           describe(by_columns, pass.key_run, g.k, g.v, pass.query_run, g.q, g.dy);
    with_boxes(described, [&]<bool kBoxes>() {
      using Rows = typename RowsShape<Dqk, Dv, kBoxes>::M;
      using Columns = typename ColumnsShape<Dqk, Dv, kBoxes>::M;
      start(queue, backward_rows_kernel<T, Dqk, Dv, kBoxes>, tasks_of(g.q, pass.query_tiles, Rows::kOwners),
            Rows::kThreads, Rows::kBytes, g, pass, by_rows);
      start(queue, backward_columns_kernel<T, Dqk, Dv, kBoxes>,
            tasks_of(g.q, pass.key_tiles, Columns::kOwners), Columns::kThreads, Columns::kBytes, g, pass,
            by_columns);
    });
  });
}

}  // namespace weft::attention::hopper
