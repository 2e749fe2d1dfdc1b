// SPDX-License-Identifier: MIT
// The launches of backward.cuh.
#include "kernels/attention/ampere/backward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::ampere {
void launch_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  with_head_sizes(g, [&]<class T, int Dqk, int Dv>() {
    using Shape = BackwardShape<Dqk, Dv>;
    start(queue, query_stationary_kernel<T, Dqk, Dv>,
          blocks_for(g.q, pass.query_tiles, Shape::kTiles), Shape::kThreads,
          BackwardMemory<Dqk, Dv, false>::kBytes, g, pass);
    start(queue, key_stationary_kernel<T, Dqk, Dv>, blocks_for(g.q, pass.key_tiles, Shape::kTiles),
          Shape::kThreads, BackwardMemory<Dqk, Dv, true>::kBytes, g, pass);
  });
}
}  // namespace weft::attention::ampere
