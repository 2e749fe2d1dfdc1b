// SPDX-License-Identifier: MIT
// The part hopper: attention by wgmma and TMA. Its launchers, each beside its kernel, and how they
// register.
#include "kernels/attention/attention.h"
#include "kernels/attention/select.h"

namespace weft {
namespace attention::hopper {
void launch_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_fused_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_band_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_band_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_head128_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_window_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_window_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void launch_column_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void launch_column_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
}  // namespace attention::hopper

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
