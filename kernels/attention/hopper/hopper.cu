// SPDX-License-Identifier: MIT
// The Hopper form of attention, by element type.
#include "kernels/attention/hopper/hopper.cuh"
#include "kernels/attention/select.h"

namespace weft::attention {

void hopper_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  const bool is_f16 = f.q.dtype == DType::f16;
  if (covers_band(pass, f.q.time)) {
    const bool done = is_f16 ? hopper::launch_band_forward<f16>(queue, f, pass)
                             : hopper::launch_band_forward<bf16>(queue, f, pass);
    if (done) return;
    if (pass.edge != kTile) return general_forward(queue, f, pass);
  }
  if (covers_window(f, pass))
    return is_f16 ? hopper::launch_window_forward<f16>(queue, f, pass)
                  : hopper::launch_window_forward<bf16>(queue, f, pass);
  if (covers_columns(f, pass))
    return is_f16 ? hopper::launch_long_band_forward<f16>(queue, f, pass)
                  : hopper::launch_long_band_forward<bf16>(queue, f, pass);
  is_f16 ? hopper::launch_forward<f16>(queue, f, pass) : hopper::launch_forward<bf16>(queue, f, pass);
}

void hopper_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  const bool is_f16 = g.q.dtype == DType::f16;
  if (covers_band(g, pass))
    return is_f16 ? hopper::launch_band_backward<f16>(queue, g, pass)
                  : hopper::launch_band_backward<bf16>(queue, g, pass);
  if (covers_wide_band(g, pass))
    return is_f16 ? hopper::launch_wide_band_backward<f16>(queue, g, pass)
                  : hopper::launch_wide_band_backward<bf16>(queue, g, pass);
  if (covers_window(g, pass))
    return is_f16 ? hopper::launch_window_backward<f16>(queue, g, pass)
                  : hopper::launch_window_backward<bf16>(queue, g, pass);
  if (takes_columns(g, pass))
    return is_f16 ? hopper::launch_long_band_backward<f16>(queue, g, pass)
                  : hopper::launch_long_band_backward<bf16>(queue, g, pass);
  is_f16 ? hopper::launch_backward<f16>(queue, g, pass) : hopper::launch_backward<bf16>(queue, g, pass);
}

}  // namespace weft::attention
