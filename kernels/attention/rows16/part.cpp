// SPDX-License-Identifier: MIT
// The part rows16: mma.sync over tiles of 16 rows, a warp for each.
#include "kernels/attention/rows16/launchers.h"
#include "kernels/attention/select.h"

namespace weft {
void register_rows16() {
#ifdef WEFT_CUDA
  attention::set_small_tile_kernels(
      {attention::ampere::launch_rows16_forward, attention::ampere::launch_rows16_backward});
#else
  attention::set_small_tile_kernels({});
#endif
}
}  // namespace weft
