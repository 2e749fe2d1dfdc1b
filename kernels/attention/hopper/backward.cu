// SPDX-License-Identifier: MIT
// Backward attention on Hopper over a TileMap as two kernels: query-stationary and key-stationary.
#include "kernels/attention/hopper/fused.cuh"
#include "kernels/attention/hopper/key_stationary.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/query_stationary.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::hopper {

template <class T>
void launch_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  with_head_sizes(g.q.size, g.v.size, [&]<int Dqk, int Dv>() {
    TensorMaps by_rows{}, by_columns{};
    const bool described = describe(by_rows, pass.query_run, g.q, g.dy, pass.key_run, g.k, g.v) &&
                           describe(by_columns, pass.key_run, g.k, g.v, pass.query_run, g.q, g.dy);
    with_bool(described, [&]<bool kTma>() {
      using Rows = typename QueryStationaryShape<Dqk, Dv, kTma>::M;
      using Columns = typename KeyStationaryShape<Dqk, Dv, kTma>::M;
      start(queue, query_stationary_kernel<T, Dqk, Dv, kTma>,
            blocks_for(g.q, pass.query_tiles, Rows::kOwners), Rows::kThreads, Rows::kBytes, g, pass, by_rows);
      start(queue, key_stationary_kernel<T, Dqk, Dv, kTma>, blocks_for(g.q, pass.key_tiles, Columns::kOwners),
            Columns::kThreads, Columns::kBytes, g, pass, by_columns);
    });
  });
}

template void launch_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_fused_backward<f16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);
template void launch_fused_backward<bf16>(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace weft::attention::hopper
