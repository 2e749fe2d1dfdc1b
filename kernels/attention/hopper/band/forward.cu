// SPDX-License-Identifier: MIT
// The launch of forward.cuh.
#include "kernels/attention/hopper/band/forward.cuh"
#include "kernels/attention/hopper/launch.cuh"

namespace weft::attention::hopper {
void launch_band_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  BandForwardMaps maps = forward_maps(f, pass);
  // A tile that is loaded again but not written costs about half as much as others.
  maps.tiles.cut(multiprocessors(), 0.5 * maps.tiles.tiles_back());
  with_head_sizes(f, [&]<class T, int Dqk, int Dv>() {
    with_bool(pass.accumulate, [&]<bool kAccumulate>() {
      with_bool(pass.reaches != nullptr, [&]<bool kDocuments>() {
        using Shape = BandForwardShape<Dqk, Dv, kAccumulate, kDocuments>;
        launch_persistent<BandForwardKernel<T, Shape>>(queue, maps.tiles.launched_items(), maps);
      });
    });
  });
}
}  // namespace weft::attention::hopper
