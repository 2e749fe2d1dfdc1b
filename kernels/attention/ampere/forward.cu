// SPDX-License-Identifier: MIT
// The launch of forward.cuh.
#include "kernels/attention/ampere/forward.cuh"
#include "kernels/attention/launchers.h"

namespace weft::attention::ampere {
void launch_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  with_head_sizes(f, [&]<class T, int Dqk, int Dv>() {
    using Shape = ForwardShape<Dqk, Dv>;
    start(queue, forward_kernel<T, Dqk, Dv>, blocks_for(f.q, pass.query_tiles, Shape::kTiles),
          Shape::kThreads, Shape::kShared, f, pass);
  });
}
}  // namespace weft::attention::ampere
