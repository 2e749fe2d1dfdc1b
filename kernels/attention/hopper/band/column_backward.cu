// SPDX-License-Identifier: MIT
// The launch of column_backward.cuh.
#include "kernels/attention/hopper/band/column_backward.cuh"
#include "kernels/attention/hopper/launchers.h"

namespace weft::attention::hopper {
void launch_column_backward(CudaQueue& queue, const AttentionBackward& g,
                            const AttentionPass& pass) {
  BandTiles tiles = BandTiles::of(pass.band, pass.reaches, g.q);
  tiles.cut_to(tiles.tiles);
  const BandBackward columns = BandBackward::of(g, pass, tiles);
  const int64_t needed = scratch_of(Kernel::hopper_column, Problem::of(g), pass);
  WEFT_CHECK(needed == 0 || g.scratch.size() >= needed, "attention: scratch of ", g.scratch.size(),
             " elements, needed are ", needed);
  with_type(g, [&]<class T>() {
    with_bool(columns.tiles.tiles <= kTilesInRegisters, [&]<bool kWhole>() {
      launch_persistent<ColumnBackwardKernel<T, kWhole>>(
          queue, columns.tiles.launched_items(), columns, static_cast<float4*>(g.scratch.data));
    });
  });
}
}  // namespace weft::attention::hopper
