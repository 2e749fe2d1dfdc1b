// SPDX-License-Identifier: MIT
// The CUDA forms of attention, between which attention.cu chooses for each pass.
#pragma once

#include <string>
#include <string_view>

#include "kernels/attention/attention.h"

namespace weft {

const char* name_of(AttentionForm);

namespace attention {

// "automatic", "simple", "general" or "hopper"; anything else throws Error that lists them.
AttentionForm parse_form(std::string_view name);

// Whether the sweeps over bands (kernels/attention/hopper/band/band.cuh), a part of `hopper`, run a pass over
// n positions.
bool covers_band(const AttentionPass&, std::int64_t n);
inline bool covers_band(const AttentionForward& f, const AttentionPass& pass) {
  return covers_band(pass, f.q.time);
}
// The backward sweep runs less of them. As the first pass it writes delta, too.
bool covers_band(const AttentionBackward&, const AttentionPass&);

// Whether the backward sweep of kernels/attention/hopper/band/head128_backward.cuh does: three key tiles,
// wide heads. As the first pass it writes delta, too.
bool covers_wide_band(const AttentionBackward&, const AttentionPass&);

// Whether the sweeps over windows of 129 to 257 rows (attention_band_window_*.cuh), a part of `hopper`, run a
// pass. Backward they write delta, too.
bool covers_window(const AttentionForward&, const AttentionPass&);
bool covers_window(const AttentionBackward&, const AttentionPass&);

// Whether a sweep runs a backward pass.
inline bool sweeps(const AttentionBackward& g, const AttentionPass& pass) {
  return covers_band(g, pass) || covers_wide_band(g, pass) || covers_window(g, pass);
}

// Tiles of a column, at most; those of which dQ needs no scratch.
inline constexpr int kTilesOfColumn = 16, kTilesInRegisters = 4;
// Whether the kernels for columns of more rows than a sweep takes (attention_band_long_*.cuh), a part of
// `hopper`, run a pass: whole columns, and forward windows, too. Backward, as the first pass they write
// delta.
bool covers_columns(const AttentionForward&, const AttentionPass&);
bool covers_columns(const AttentionBackward&, const AttentionPass&);
// Elements of scratch that the backward pass needs for that, 0 for short columns; whether it has them.
std::int64_t columns_scratch(const AttentionBackward&, const AttentionPass&);
bool takes_columns(const AttentionBackward&, const AttentionPass&);

// Whether the walk that sums all three gradients (kernels/attention/hopper/fused.cuh), a part of `hopper`,
// runs the one pass of `g`, given fused_scratch() elements.
bool covers_fused(const AttentionBackward& g);
// Whether it is faster there than two walks.
bool gains_by_fused(const AttentionBackward& g);
std::int64_t fused_scratch(const AttentionBackward& g);

// The form that runs a pass with tiles of edge `edge` on a GPU of compute capability 80, 90, ...: `wanted`
// where it covers the case, else Error with the forms that do; automatic: the fastest that does. `sweep`:
// covers_band(), so that no tiles are needed.
AttentionForm choose_form(AttentionForm wanted, DType, int edge, std::int64_t qk_size, std::int64_t v_size,
                          bool segments, int compute_capability, bool sweep = false);

// The form that runs pass `p` of x, an AttentionForward or AttentionBackward.
template <class Parameters>
AttentionForm form_of_pass(const Parameters& x, int p, int compute_capability) {
  const AttentionPass& pass = x.maps.pass[p];
  return choose_form(x.form, x.q.dtype, pass.edge, x.q.size, x.v.size, static_cast<bool>(x.segments),
                     compute_capability, covers_band(x, pass));
}
// Those of all passes: "hopper + general".
template <class Parameters>
std::string forms_text(const Parameters& x, int compute_capability) {
  std::string text;
  for (int p = 0; p < x.maps.passes; ++p)
    text += str(p ? " + " : "", name_of(form_of_pass(x, p, compute_capability)));
  return text;
}
// Those of both directions: "hopper", or "hopper; backward general".
inline std::string forms_text(const AttentionForward& f, const AttentionBackward& g, int compute_capability) {
  const std::string there = forms_text(f, compute_capability), back = forms_text(g, compute_capability);
  return there == back ? there : there + "; backward " + back;
}

// One pass each; the backward ones need `delta`, but for a first pass that is a band.
void simple_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void simple_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void general_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void general_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void hopper_forward(CudaQueue&, const AttentionForward&, const AttentionPass&);
void hopper_backward(CudaQueue&, const AttentionBackward&, const AttentionPass&);

// What general_forward() and general_backward() are made of: tiles of edge 64, and of edge 16.
void forward_f16(CudaQueue&, const AttentionForward&, const AttentionPass&);
void forward_bf16(CudaQueue&, const AttentionForward&, const AttentionPass&);
void backward_f16(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void backward_bf16(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void small_forward_f16(CudaQueue&, const AttentionForward&, const AttentionPass&);
void small_forward_bf16(CudaQueue&, const AttentionForward&, const AttentionPass&);
void small_backward_f16(CudaQueue&, const AttentionBackward&, const AttentionPass&);
void small_backward_bf16(CudaQueue&, const AttentionBackward&, const AttentionPass&);

}  // namespace attention
}  // namespace weft
