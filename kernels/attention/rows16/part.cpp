// SPDX-License-Identifier: MIT
// The part rows16: mma.sync over tiles of 16 rows, a warp for each.
#include "kernels/attention/rows16/launchers.h"
#include "kernels/attention/select.h"

namespace weft {
void register_rows16() {
#ifdef WEFT_CUDA
  attention::add_kernel(
      attention::Kernel::general_small_tiles,
      {attention::ampere::launch_rows16_forward, attention::ampere::launch_rows16_backward});
#else
  attention::add_kernel(attention::Kernel::general_small_tiles, {});
#endif
}
}  // namespace weft
