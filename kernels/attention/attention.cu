// SPDX-License-Identifier: MIT
// Attention on CUDA: what it takes, the launch of what select() answers, and delta.
#include "kernels/attention/attention.h"
#include "kernels/attention/check.h"
#include "kernels/attention/launchers.h"
#include "kernels/attention/select.h"
#include "kernels/device/cuda.cuh"

#include <array>
#include <initializer_list>
#include <utility>

namespace weft {
namespace {
using namespace attention;

void check_cuda(DType dtype,
                std::initializer_list<std::pair<const char*, const HeadsView*>> views) {
  check_cuda_dtype(dtype);
  for (const auto& [name, view] : views) check_cuda_rows(name, *view);
}

// The kernel of each pass: all are selected before the first is launched.
template <class Parameters>
std::array<Kernel, AttentionMaps::kMaxPasses> select_all(const Parameters& x) {
  const int capability = compute_capability();
  const Problem problem = Problem::of(x);
  std::array<Kernel, AttentionMaps::kMaxPasses> kernels{};
  for (int p = 0; p < x.maps.passes; ++p) kernels[p] = select(problem, x.maps.pass[p], capability);
  return kernels;
}

KernelLaunchers launchers_of(Kernel kernel) {
  if (kernel == Kernel::simple) return {simple::launch_forward, simple::launch_backward};
  if (kernel == Kernel::general) return {ampere::launch_forward, ampere::launch_backward};
  return *added_kernel(kernel);
}

// delta_i = dy_i . y_i: 8 lanes for a row, 8 elements at a time.
constexpr int kDeltaThreads = 256, kRowLanes = 8;

template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(const __grid_constant__ AttentionBackward g) {
  const HeadsView &y = g.y, &dy = g.dy;
  const int64_t row = (int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / kRowLanes;
  const bool inside = row < y.batch * y.time * y.heads;
  const int64_t h = row % y.heads, t = row / y.heads % y.time, b = row / y.heads / y.time;
  const int lane = threadIdx.x % kRowLanes;
  const int64_t size = inside ? y.size : 0;
  const T *y_row = static_cast<const T*>(y.data) + b * y.batch_stride + t * y.time_stride +
                   h * y.head_stride,
          *dy_row = static_cast<const T*>(dy.data) + b * dy.batch_stride + t * dy.time_stride +
                    h * dy.head_stride;
  float sum = 0;
  for (int64_t first = lane * 8; first < size; first += kRowLanes * 8) {
    float a[8], c[8];
    load(a, y_row + first, 8, true);
    load(c, dy_row + first, 8, true);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(a[i], c[i], sum);
  }
  sum = warp_sum<kRowLanes>(sum);
  if (inside && lane == 0) static_cast<float*>(g.delta.data)[(b * y.heads + h) * y.time + t] = sum;
}
}  // namespace

void attention::write_delta(CudaQueue& queue, const AttentionBackward& g) {
  const unsigned blocks = blocks_for(g.y.batch * g.y.time * g.y.heads * kRowLanes, kDeltaThreads);
  if (blocks == 0) return;
  dispatch_cuda(g.y.dtype,
                [&]<class T>() { delta_kernel<T><<<blocks, kDeltaThreads, 0, queue.stream>>>(g); });
}

void compute(CudaQueue& queue, const AttentionForward& f) {
  check_cuda(f.q.dtype, {{"q", &f.q}, {"k", &f.k}, {"v", &f.v}, {"y", &f.y}});
  WEFT_CHECK(f.scale > 0, "attention on CUDA: the scale must be positive, got ", f.scale);
  const auto kernels = select_all(f);
  for (int p = 0; p < f.maps.passes; ++p)
    launchers_of(kernels[p]).forward(queue, f, f.maps.pass[p]);
}

int64_t backward_scratch(const CudaQueue&, const AttentionBackward& g) {
  return wanted_scratch(g, compute_capability(), Scratch::kWhereFaster);
}

void compute(CudaQueue& queue, const AttentionBackward& g) {
  check_cuda(g.q.dtype, {{"q", &g.q},
                         {"k", &g.k},
                         {"v", &g.v},
                         {"y", &g.y},
                         {"dq", &g.dq},
                         {"dk", &g.dk},
                         {"dv", &g.dv},
                         {"dy", &g.dy}});
  const auto kernels = select_all(g);
  if (!writes_delta(kernels[0], g.maps.passes)) write_delta(queue, g);
  for (int p = 0; p < g.maps.passes; ++p)
    launchers_of(kernels[p]).backward(queue, g, g.maps.pass[p]);
}
}  // namespace weft
