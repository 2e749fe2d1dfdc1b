// SPDX-License-Identifier: MIT
// Kernels made of independent items: one function is the definition, the body of the CPU's loop and that of a
// CUDA thread. Sums run in order, and in f32 by fma alone, so that both give the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/attention/content/range.h"

#ifdef __CUDACC__
#include "kernels/device/cuda.cuh"
#define WEFT_ITEM __host__ __device__ inline
#else
#include "kernels/cpu.h"
#define WEFT_ITEM inline
#endif

namespace weft::content {

using std::int32_t;
using std::int64_t;

constexpr float kLeastNorm = 1e-6f;  // of a query that is divided by its norm

template <class T>
WEFT_ITEM T* row_at(const HeadsView& x, int64_t b, int64_t t, int64_t h) {
  return static_cast<T*>(x.data) + b * x.batch_stride + t * x.time_stride + h * x.head_stride;
}
template <class T>
WEFT_ITEM T* data_of(const TensorView& x) {
  return static_cast<T*>(x.data);
}

// Eight elements at a time on CUDA, where rows are aligned to 16 bytes.
template <class W, class T>
WEFT_ITEM void read_eight(W* out, const T* row) {
#ifdef __CUDA_ARCH__
  float eight[8];
  load(eight, row, 8, true);
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = eight[i];
#else
  for (int i = 0; i < 8; ++i) out[i] = static_cast<W>(row[i]);
#endif
}
template <class W, class T>
WEFT_ITEM void write_eight(T* row, const W* in) {
#ifdef __CUDA_ARCH__
  float eight[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) eight[i] = in[i];
  store(row, eight, 8, true);
#else
  for (int i = 0; i < 8; ++i) row[i] = static_cast<T>(in[i]);
#endif
}

WEFT_ITEM float fma_of(float a, float b, float c) { return std::fma(a, b, c); }
WEFT_ITEM double fma_of(double a, double b, double c) { return std::fma(a, b, c); }

// sum_d a[d] b[d] of rows of a multiple of 8 elements, in order, in W.
template <class W, class A, class B>
WEFT_ITEM W dot_rows(const A* a, const B* b, int64_t size) {
  W sum = 0;
  for (int64_t d = 0; d < size; d += 8) {
    W x[8], y[8];
    read_eight(x, a + d);
    read_eight(y, b + d);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fma_of(x[i], y[i], sum);
  }
  return sum;
}
// 1 / max(|row|, kLeastNorm)
template <class W, class T>
WEFT_ITEM W inverse_norm(const T* row, int64_t size) {
  const W norm = std::sqrt(dot_rows<W>(row, row, size));
  return 1 / (norm > W(kLeastNorm) ? norm : W(kLeastNorm));
}
// out[d] = f(d, a[d], b[d]), eight at a time.
template <class W, class O, class A, class B, class F>
WEFT_ITEM void combine_rows(O* out, const A* a, const B* b, int64_t size, F&& f) {
  for (int64_t d = 0; d < size; d += 8) {
    W x[8], y[8];
    read_eight(x, a + d);
    read_eight(y, b + d);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = f(x[i], y[i]);
    write_eight(out + d, x);
  }
}

// A query, in registers where its size is at most P > 0.
template <class T, int P>
struct Query {
  const T* row;
  int64_t size;
  float at[P > 0 ? P : 8];

  WEFT_ITEM Query(const T* r, int64_t n) : row(r), size(n) {
#pragma unroll
    for (int d = 0; d < P; d += 8)
      if (d < size) read_eight(at + d, row + d);
  }
  // sum_d q[d] term(d) in order, where eight(out, d) gives eight terms.
  template <class F>
  WEFT_ITEM float dot(F&& eight) const {
    float sum = 0, x[8], q[8];
#pragma unroll(P > 0 ? P / 8 : 1)
    for (int64_t d = 0; d < (P > 0 ? P : size); d += 8) {
      if (d >= size) break;
      if (P == 0) read_eight(q, row + d);
      eight(x, d);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fma_of(P > 0 ? at[P > 0 ? d + i : i] : q[i], x[i], sum);
    }
    return sum;
  }
};

// Calls f.operator()<P>() for queries of `size`.
template <class F>
void with_size(int64_t size, F&& f) {
  if (size <= 64) return f.template operator()<64>();
  if (size <= 128) return f.template operator()<128>();
  f.template operator()<0>();
}

// Calls kItem(k, i) for i in 0 .. n - 1, in any order.
template <auto kItem, class K>
void for_items(CpuQueue&, const K& k, int64_t n) {
#pragma omp parallel for schedule(dynamic, 64) if (n > 256)
  for (int64_t i = 0; i < n; ++i) kItem(k, i);
}
template <class F>
void dispatch(CpuQueue&, DType t, F&& f) {
  dispatch_float(t, f);
}
// Of parameters and statistics.
template <class F>
void dispatch_wide(CpuQueue&, DType t, F&& f) {
  t == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}
#ifdef __CUDACC__
inline constexpr int kItemThreads = 128;
template <auto kItem, class K>
__global__ void __launch_bounds__(kItemThreads) items_kernel(const __grid_constant__ K k, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kItemThreads + threadIdx.x;
  if (i < n) kItem(k, i);
}
template <auto kItem, class K>
void for_items(CudaQueue& queue, const K& k, int64_t n) {
  if (n == 0) return;
  items_kernel<kItem, K><<<blocks_for(n, kItemThreads), kItemThreads, 0, queue.stream>>>(k, n);
}
template <class F>
void dispatch(CudaQueue&, DType t, F&& f) {
  dispatch_cuda(t, f);
}
template <class F>
void dispatch_wide(CudaQueue&, DType, F&& f) {
  f.template operator()<float>();
}
#endif

}  // namespace weft::content
