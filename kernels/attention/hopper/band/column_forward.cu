// SPDX-License-Identifier: MIT
// The launch of column_forward.cuh.
#include "kernels/attention/hopper/band/column_forward.cuh"
#include "kernels/attention/hopper/band/forward_launch.cuh"
#include "kernels/attention/hopper/launchers.h"

namespace weft::attention::hopper {
void launch_column_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps = forward_maps(f, pass);
  with_head_sizes(f, [&]<class T, int Dqk, int Dv>() {
    const auto launch = [&]<bool kAccumulate, bool kWindow>() {
      using Shape = ColumnForwardShape<Dqk, Dv, kAccumulate, kWindow>;
      maps.tiles.cut_to(Shape::kConsumers);
      launch_persistent<ColumnForwardKernel<T, Shape>>(queue, maps.tiles.launched_items(), f, maps);
    };
    if (maps.tiles.reach != BandTiles::kNoLimit)
      launch.template operator()<false, true>();
    else
      pass.accumulate ? launch.template operator()<true, false>()
                      : launch.template operator()<false, false>();
  });
}
}  // namespace weft::attention::hopper
