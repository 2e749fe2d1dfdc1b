// SPDX-License-Identifier: MIT
// Attention on CUDA: what it takes, which form runs, and delta.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <array>

#include "kernels/attention/check.h"
#include "kernels/attention/select.h"
#include "kernels/device/cuda.cuh"

namespace weft {
namespace {

// The form of each pass: all are chosen before the first is launched.
template <class Parameters>
std::array<AttentionForm, AttentionMaps::kMaxPasses> choose_forms(const Parameters& x) {
  const int capability = compute_capability();
  std::array<AttentionForm, AttentionMaps::kMaxPasses> forms{};
  for (int p = 0; p < x.maps.passes; ++p) forms[p] = attention::form_of_pass(x, p, capability);
  return forms;
}

// delta_i = dy_i . y_i: 16 lanes for a row, 8 elements at a time.
constexpr int kDeltaThreads = 256, kRowLanes = 16;
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_kernel(const __grid_constant__ AttentionBackward g) {
  const HeadsView &y = g.y, &dy = g.dy;
  const std::int64_t row = (std::int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / kRowLanes;
  const bool inside = row < y.batch * y.time * y.heads;
  const std::int64_t h = row % y.heads, t = row / y.heads % y.time, b = row / y.heads / y.time;
  const int lane = threadIdx.x % kRowLanes;
  const std::int64_t size = inside ? y.size : 0;
  const T *y_row = static_cast<const T*>(y.data) + b * y.batch_stride + t * y.time_stride + h * y.head_stride,
          *dy_row =
              static_cast<const T*>(dy.data) + b * dy.batch_stride + t * dy.time_stride + h * dy.head_stride;
  float sum = 0;
  for (std::int64_t first = lane * 8; first < size; first += kRowLanes * 8) {
    float a[8], c[8];
    load(a, y_row + first, 8, true);
    load(c, dy_row + first, 8, true);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(a[i], c[i], sum);
  }
#pragma unroll
  for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kFullWarp, sum, lanes);
  if (inside && lane == 0) static_cast<float*>(g.delta.data)[(b * y.heads + h) * y.time + t] = sum;
}

void write_delta(CudaQueue& queue, const AttentionBackward& g) {
  const unsigned blocks = blocks_for(g.y.batch * g.y.time * g.y.heads * kRowLanes, kDeltaThreads);
  if (blocks == 0) return;
  dispatch_cuda(g.y.dtype,
                [&]<class T>() { delta_kernel<T><<<blocks, kDeltaThreads, 0, queue.stream>>>(g); });
}

}  // namespace

namespace attention {

void general_forward(CudaQueue& queue, const AttentionForward& f, const AttentionPass& pass) {
  const bool is_f16 = f.q.dtype == DType::f16;
  if (pass.edge == kTile) return is_f16 ? forward_f16(queue, f, pass) : forward_bf16(queue, f, pass);
  is_f16 ? small_forward_f16(queue, f, pass) : small_forward_bf16(queue, f, pass);
}

void general_backward(CudaQueue& queue, const AttentionBackward& g, const AttentionPass& pass) {
  const bool is_f16 = g.q.dtype == DType::f16;
  if (pass.edge == kTile) return is_f16 ? backward_f16(queue, g, pass) : backward_bf16(queue, g, pass);
  is_f16 ? small_backward_f16(queue, g, pass) : small_backward_bf16(queue, g, pass);
}

}  // namespace attention

void run(CudaQueue& queue, const AttentionForward& f) {
  check(f);
  check_cuda_dtype(f.q.dtype);
  check_cuda_rows("q", f.q);
  check_cuda_rows("k", f.k);
  check_cuda_rows("v", f.v);
  check_cuda_rows("y", f.y);
  WEFT_CHECK(f.scale > 0, "attention on CUDA: the scale must be positive, got ", f.scale);
  const auto forms = choose_forms(f);
  for (int p = 0; p < f.maps.passes; ++p) {
    const AttentionPass& pass = f.maps.pass[p];
    if (forms[p] == AttentionForm::simple) attention::simple_forward(queue, f, pass);
    if (forms[p] == AttentionForm::general) attention::general_forward(queue, f, pass);
    if (forms[p] == AttentionForm::hopper) attention::hopper_forward(queue, f, pass);
  }
}

std::int64_t backward_scratch(const CudaQueue&, const AttentionBackward& g) {
  const auto is_hopper = [&](int p) {
    return attention::form_of_pass(g, p, compute_capability()) == AttentionForm::hopper;
  };
  std::int64_t elements = 0;
  if (attention::covers_fused(g) && attention::gains_by_fused(g) && is_hopper(0))
    elements = attention::fused_scratch(g);
  for (int p = 0; p < g.maps.passes; ++p)
    if (attention::covers_columns(g, g.maps.pass[p]) && is_hopper(p))
      elements = std::max(elements, attention::columns_scratch(g, g.maps.pass[p]));
  return elements;
}

void run(CudaQueue& queue, const AttentionBackward& g) {
  check(g);
  check_cuda_dtype(g.q.dtype);
  check_cuda_rows("q", g.q);
  check_cuda_rows("k", g.k);
  check_cuda_rows("v", g.v);
  check_cuda_rows("y", g.y);
  check_cuda_rows("dq", g.dq);
  check_cuda_rows("dk", g.dk);
  check_cuda_rows("dv", g.dv);
  check_cuda_rows("dy", g.dy);
  const auto forms = choose_forms(g);
  // The Hopper form computes delta on the way: a sweep of the first pass does, and its columns, and walks
  // that are the only pass.
  const bool written_on_the_way = g.maps.passes > 0 && forms[0] == AttentionForm::hopper &&
                                  (g.maps.passes == 1 || attention::sweeps(g, g.maps.pass[0]) ||
                                   attention::takes_columns(g, g.maps.pass[0]));
  if (!written_on_the_way) write_delta(queue, g);
  for (int p = 0; p < g.maps.passes; ++p) {
    const AttentionPass& pass = g.maps.pass[p];
    if (forms[p] == AttentionForm::simple) attention::simple_backward(queue, g, pass);
    if (forms[p] == AttentionForm::general) attention::general_backward(queue, g, pass);
    if (forms[p] == AttentionForm::hopper) attention::hopper_backward(queue, g, pass);
  }
}

}  // namespace weft
