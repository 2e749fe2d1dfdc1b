// SPDX-License-Identifier: MIT
// A thread copies one element.
#include "kernels/device/cuda.cuh"
#include "kernels/sampling/gather_rows.h"

namespace weft {
namespace {
constexpr int kThreads = 256;

template <class T> struct Gather {
  T* y;
  const T* x;
  const int32_t* source;
  int64_t elements, rows, size, heads, time_stride, head_stride;
};

template <class T> __global__ void __launch_bounds__(kThreads) gather(const Gather<T> a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.elements) return;
  const int64_t from = a.source[i / a.size % a.rows];
  if (from >= 0) a.y[i] = a.x[from / a.heads * a.time_stride + from % a.heads * a.head_stride + i % a.size];
}
}  // namespace

void compute(CudaQueue& q, const GatherRows& k) {
  if (k.y.size() == 0) return;
  dispatch_cuda(k.y.dtype, [&]<class T>() {
    const Gather<T> a = {
        k.y.as<T>(), k.x.row<const T>(0, 0, 0), k.source,       k.y.size(), k.y.shape[1], k.x.size,
        k.x.heads,   k.x.time_stride,           k.x.head_stride};
    gather<<<blocks_for(a.elements, kThreads), kThreads, 0, q.stream>>>(a);
  });
}
}  // namespace weft
