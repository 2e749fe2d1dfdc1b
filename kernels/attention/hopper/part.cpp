// SPDX-License-Identifier: MIT
// The part hopper: attention by wgmma and TMA.
#include "kernels/attention/hopper/launchers.h"
#include "kernels/attention/select.h"

namespace weft {
void register_hopper() {
  using attention::add_kernel, attention::Kernel;
#ifdef WEFT_CUDA
  using namespace attention::hopper;
  add_kernel(Kernel::hopper, {launch_forward, launch_backward});
  add_kernel(Kernel::hopper_fused, {nullptr, launch_fused_backward});
  add_kernel(Kernel::hopper_band, {launch_band_forward, launch_band_backward});
  add_kernel(Kernel::hopper_head128, {nullptr, launch_head128_backward});
  add_kernel(Kernel::hopper_window, {launch_window_forward, launch_window_backward});
  add_kernel(Kernel::hopper_column, {launch_column_forward, launch_column_backward});
#else
  add_kernel(Kernel::hopper, {});
#endif
}
}  // namespace weft
