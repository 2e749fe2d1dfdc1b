// SPDX-License-Identifier: MIT
// Attention on CUDA: what it takes, which form runs, and delta.
#include "kernels/attention.h"

#include "kernels/attention_check.h"
#include "kernels/attention_forms.h"
#include "kernels/cuda.cuh"

namespace weft {
namespace {

enum class Form { f32, f16, bf16 };

// f16 and bf16 run on tensor cores with f32 sums; f32 stays in f32.
Form form_of(DType t) {
  switch (t) {
    case DType::f32: return Form::f32;
    case DType::f16: return Form::f16;
    case DType::bf16: return Form::bf16;
    default:
      fail(str("attention on CUDA takes f32, f16 and bf16, got ", name_of(t), "; the CPU takes f64 too"));
  }
}

// Kernels read and write rows in pieces of 16 bytes.
void check_rows(const char* name, const HeadsView& x) {
  WEFT_CHECK(x.size % 8 == 0 && x.size >= 8 && x.size <= 128, "attention on CUDA: heads of ", name,
             " have size ", x.size, "; 8, 16, 24, ... 128 work");
  const std::int64_t bytes = size_of(x.dtype);
  const bool aligned = aligned16(x.data) && x.batch_stride * bytes % 16 == 0 &&
                       x.time_stride * bytes % 16 == 0 && x.head_stride * bytes % 16 == 0;
  WEFT_CHECK(aligned, "attention on CUDA: the rows of ", name,
             " must start at multiples of 16 bytes; strides are ", x.batch_stride, ", ", x.time_stride,
             " and ", x.head_stride, " elements of ", bytes, " bytes");
  WEFT_CHECK(x.time_stride >= 0 && x.time_stride * bytes <= 0xffffffff, "attention on CUDA: positions of ",
             name, " are ", x.time_stride, " elements apart; at most 4 GiB work");
}

// delta_i = dy_i . y_i: 16 lanes for a row, 8 elements each.
constexpr int kDeltaThreads = 256, kRowLanes = 16;
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_kernel(const __grid_constant__ AttentionBackward g) {
  const HeadsView &y = g.y, &dy = g.dy;
  const std::int64_t row = (std::int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / kRowLanes;
  const bool inside = row < y.batch * y.time * y.heads;
  const std::int64_t h = row % y.heads, t = row / y.heads % y.time, b = row / y.heads / y.time;
  const int first = threadIdx.x % kRowLanes * 8;
  float sum = 0;
  if (inside && first < y.size) {
    float a[8], c[8];
    load(a,
         static_cast<const T*>(y.data) + b * y.batch_stride + t * y.time_stride + h * y.head_stride + first,
         8, true);
    load(c,
         static_cast<const T*>(dy.data) + b * dy.batch_stride + t * dy.time_stride + h * dy.head_stride +
             first,
         8, true);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(a[i], c[i], sum);
  }
#pragma unroll
  for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kFullWarp, sum, lanes);
  if (inside && first == 0) static_cast<float*>(g.delta.data)[(b * y.heads + h) * y.time + t] = sum;
}

void write_delta(CudaQueue& queue, const AttentionBackward& g) {
  const unsigned blocks = blocks_for(g.y.batch * g.y.time * g.y.heads * kRowLanes, kDeltaThreads);
  if (blocks == 0) return;
  dispatch_cuda(g.y.dtype,
                [&]<class T>() { delta_kernel<T><<<blocks, kDeltaThreads, 0, queue.stream>>>(g); });
}

}  // namespace

void run(CudaQueue& queue, const AttentionForward& f) {
  check(f);
  const Form form = form_of(f.q.dtype);
  check_rows("q", f.q);
  check_rows("k", f.k);
  check_rows("v", f.v);
  check_rows("y", f.y);
  WEFT_CHECK(f.scale > 0, "attention on CUDA: the scale must be positive, got ", f.scale);
  switch (form) {
    case Form::f32: return attention::forward_f32(queue, f);
    case Form::f16: return attention::forward_f16(queue, f);
    case Form::bf16: return attention::forward_bf16(queue, f);
  }
}

void run(CudaQueue& queue, const AttentionBackward& g) {
  check(g);
  const Form form = form_of(g.q.dtype);
  check_rows("q", g.q);
  check_rows("k", g.k);
  check_rows("v", g.v);
  check_rows("y", g.y);
  check_rows("dq", g.dq);
  check_rows("dk", g.dk);
  check_rows("dv", g.dv);
  check_rows("dy", g.dy);
  write_delta(queue, g);
  switch (form) {
    case Form::f32: return attention::backward_f32(queue, g);
    case Form::f16: return attention::backward_f16(queue, g);
    case Form::bf16: return attention::backward_bf16(queue, g);
  }
}

void run(CudaQueue& queue, const AttentionDecode& d) {
  check(d);
  form_of(d.q.dtype);
  check_rows("q", d.q);
  check_rows("k", d.k);
  check_rows("v", d.v);
  check_rows("y", d.y);
  attention::decode(queue, d);
}

}  // namespace weft
