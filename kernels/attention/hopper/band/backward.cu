// SPDX-License-Identifier: MIT
// The launch of backward.cuh.
#include "kernels/attention/hopper/band/backward.cuh"
#include "kernels/attention/hopper/launchers.h"

namespace weft::attention::hopper {
void launch_band_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  BandTiles tiles = BandTiles::of(pass.band, pass.reaches, g.q);
  tiles.cut(multiprocessors(), tiles.tiles_back());
  if (tiles.launched_items() == 0) return;
  const BandBackward work = BandBackward::of(g, pass, tiles);
  with_head_sizes(g, [&]<class T, int Dqk, int Dv>() {
    if constexpr (Dqk == 64) {
      if (Dv == 64 || tiles.tiles_back() == 2)
        return start_band_backward<T, Dqk, Dv, 3>(queue, work);
    }
    if constexpr (Dv == 128) start_band_backward<T, Dqk, Dv, 2>(queue, work);
  });
}
}  // namespace weft::attention::hopper
