// SPDX-License-Identifier: MIT
// Backward attention on Hopper over a TileMap: as two kernels, query-stationary and key-stationary,
// or as one.
#include "kernels/attention/hopper/fused.cuh"
#include "kernels/attention/hopper/key_stationary.cuh"
#include "kernels/attention/hopper/launch.cuh"
#include "kernels/attention/hopper/launchers.h"
#include "kernels/attention/hopper/query_stationary.cuh"

#include <algorithm>

namespace weft::attention::hopper {
void launch_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  with_head_sizes(g, [&]<class T, int Dqk, int Dv>() {
    TensorMaps by_rows{}, by_columns{};
    const bool described = describe(by_rows, pass.query_run, g.q, g.dy, pass.key_run, g.k, g.v) &&
                           describe(by_columns, pass.key_run, g.k, g.v, pass.query_run, g.q, g.dy);
    with_bool(described, [&]<bool kTma>() {
      using ByRows = QueryStationaryKernel<T, Dqk, Dv, kTma>;
      using ByColumns = KeyStationaryKernel<T, Dqk, Dv, kTma>;
      launch_persistent<ByRows>(queue,
                                blocks_for(g.q, pass.query_tiles, ByRows::SharedStorage::kOwners),
                                g, pass, by_rows);
      launch_persistent<ByColumns>(
          queue, blocks_for(g.q, pass.key_tiles, ByColumns::SharedStorage::kOwners), g, pass,
          by_columns);
    });
  });
}

void launch_fused_backward(CudaQueue& queue, const AttentionBackward& g,
                           const AttentionPass& pass) {
  TensorMaps tensor_maps{};
  WEFT_CHECK(describe(tensor_maps, pass.key_run, g.k, g.v, pass.query_run, g.q, g.dy), kTmaRefuses);
  const int64_t needed = scratch_of(Kernel::hopper_fused, Problem::of(g), pass);
  WEFT_CHECK(g.scratch.size() >= needed, "attention: scratch of ", g.scratch.size(),
             " elements, needed are ", needed);
  const FusedScratch scratch = FusedScratch::of(g, pass);
  const int64_t rows =
      std::max(g.q.batch * g.q.heads * g.q.time, g.q.batch * g.q.heads * scratch.tiles);
  with_type(g, [&]<class T>() {
    const auto blocks = static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
    begin_fused_kernel<T><<<blocks, kRowThreads, 0, queue.stream>>>(g, pass, scratch);
    launch_persistent_dependent<FusedKernel<T>>(
        queue, blocks_for(g.q, pass.key_tiles, FusedMemory::kOwners), g, pass, tensor_maps,
        scratch);
  });
}
}  // namespace weft::attention::hopper
