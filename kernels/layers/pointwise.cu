// SPDX-License-Identifier: MIT
// Elementwise kernels on CUDA: one thread for eight neighbouring elements, or for a bias eight
// columns.
#include "kernels/device/column_sums.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/layers/dropout_mask.cuh"
#include "kernels/layers/pointwise.h"

#include <cstddef>

namespace weft {
namespace {
constexpr int kThreads = 256;
constexpr int kGroup = 8;  // elements of a thread, and of one Philox call
constexpr int kRowBlocksOfSm = 4;
constexpr int64_t kRowBlocks = 132 * kRowBlocksOfSm;  // the multiprocessors of an H200

// body(first, count): the elements first .. first + min(8, count) - 1.
template <class Body>
__global__ void __launch_bounds__(kThreads) for_groups(int64_t n, Body body) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (first < n) body(first, n - first);
}

template <class Body>
void launch_groups(CudaQueue& q, int64_t n, const Body& body) {
  if (n == 0) return;
  for_groups<<<blocks_for(n, kThreads * kGroup), kThreads, 0, q.stream>>>(n, body);
}

template <class T>
__device__ __forceinline__ Activated<float> gelu(float v) {
  constexpr float slope = static_cast<float>(kGeluSlope);
  const float s = __fdividef(1.0f, 1.0f + exp_for<T>(-(slope * v))), y = v * s;
  return {y, s + slope * y * (1.0f - s)};
}

// Backward where there is a dy.
template <class T>
struct Rows {
  T* out;
  const T *dy, *x, *bias;  // bias: null when absent
  float* partial;          // (stripes, cols): first stage of dbias
  int64_t rows, cols;
  bool accumulate;
};

// Grid (column blocks, stripes) as in kernels/device/column_sums.cuh; a warp has kRows rows in
// flight.
template <class T, Activation kF, bool kBackward, bool kPacked, int kRows>
__global__ void __launch_bounds__(kStripeThreads, kRowBlocksOfSm) activation_rows(const Rows<T> a) {
  const int64_t first_of_block = static_cast<int64_t>(blockIdx.x) * kStripeColumns;
  const int64_t first = first_of_block + threadIdx.x % kWarp * kGroup;
  const int64_t count = kPacked && first < a.cols ? kGroup : a.cols - first;
  const int64_t step = static_cast<int64_t>(gridDim.y) * kStripeWarps;
  float bias[kGroup] = {}, sum[1][kGroup] = {};
  if (a.bias) load(bias, a.bias + first, count, kPacked);
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kStripeWarps + threadIdx.x / kWarp;
       first < a.cols && row < a.rows; row += kRows * step) {
    Eight<T> x[kRows], dy[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!kPacked || row + r * step >= a.rows) break;
      x[r] = load_eight(a.x + (row + r * step) * a.cols + first);
      if constexpr (kBackward) dy[r] = load_eight(a.dy + (row + r * step) * a.cols + first);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r * step >= a.rows) break;
      const int64_t at = (row + r * step) * a.cols + first;
      float v[kGroup], gradient[kGroup];
      if constexpr (kPacked) unpack(v, x[r]);
      if constexpr (!kPacked) load(v, a.x + at, count, false);
      if constexpr (kBackward && kPacked) unpack(gradient, dy[r]);
      if constexpr (kBackward && !kPacked) load(gradient, a.dy + at, count, false);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        const Activated<float> at_v = activated<kF>(v[j] + bias[j], gelu<T>);
        v[j] = kBackward ? gradient[j] * at_v.slope : at_v.y;
        if constexpr (kBackward) sum[0][j] += v[j];
      }
      store(a.out + at, v, kPacked ? kGroup : count, kPacked, a.accumulate);
    }
  }
  if constexpr (kBackward) {
    __shared__ WarpSums<1> of_warp;
    write_stripe<1>(of_warp, a.partial, blockIdx.y, first_of_block, a.cols, sum);
  }
}

// partial: null forward.
template <bool kBackward>
void launch_rows(CudaQueue& q, Activation f, const GradView& out, const TensorView& dy,
                 const TensorView& x, const TensorView& bias, int64_t stripes, float* partial) {
  const int64_t cols = x.cols();
  const dim3 grid(blocks_for(cols, kStripeColumns), static_cast<unsigned>(stripes));
  const bool packed = cols % kGroup == 0 && aligned16(out.view, dy, x, bias);
  dispatch_cuda(x.dtype, [&]<class T>() {
    constexpr int kRows = (kBackward ? 4 : 8) / static_cast<int>(sizeof(T));
    const Rows<T> a = {out.view.as<T>(), dy.or_null<T>(), x.as<T>(), bias.or_null<T>(),
                       partial,          x.rows(),        cols,      out.accumulate};
    dispatch_activation(f, [&]<Activation kF>() {
      if (packed)
        activation_rows<T, kF, kBackward, true, kRows><<<grid, kStripeThreads, 0, q.stream>>>(a);
      if (!packed)
        activation_rows<T, kF, kBackward, false, 1><<<grid, kStripeThreads, 0, q.stream>>>(a);
    });
  });
}

template <class T>
struct DropoutBody {
  T* y;
  const T* x;
  DropoutCall call;
  bool packed, accumulate, whole;  // whole: rows of whole groups

  __device__ void operator()(int64_t first, int64_t count) const {
    float v[kGroup];
    load(v, x + first, count, packed);
    whole ? drop<true>(v, call, first) : drop<false>(v, call, first);
    store(y + first, v, count, packed, accumulate);
  }
};

template <class Y, class X>
struct CopyBody {
  Y* y;
  const X* x;
  bool packed, accumulate;

  __device__ void operator()(int64_t first, int64_t count) const {
    float v[kGroup];
    load(v, x + first, count, packed);
    store(y + first, v, count, packed, accumulate);
  }
};

// A thread has all its terms in flight at a time.
template <class T>
struct SumBody {
  T* out;
  const T* xs[SumOf::kMost];
  int terms;
  bool packed;

  __device__ void operator()(int64_t first, int64_t count) const {
    constexpr int kMost = static_cast<int>(SumOf::kMost);
    float x[kMost][kGroup], sum[kGroup];
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (i < terms) load(x[i], xs[i] + first, count, packed);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) sum[e] = x[0][e];
#pragma unroll
    for (int i = 1; i < kMost; ++i) {
      if (i >= terms) continue;
#pragma unroll
      for (int e = 0; e < kGroup; ++e) sum[e] += x[i][e];
    }
    store(out + first, sum, count, packed, false);
  }
};
}  // namespace

void compute(CudaQueue& q, const ActivationForward& k) {
  if (k.x.size() == 0) return;
  launch_rows<false>(q, k.f, {k.y, false}, {}, k.x, k.bias,
                     stripes_of(k.x.rows(), k.x.cols(), kRowBlocks), nullptr);
}

void compute(CudaQueue& q, const ActivationBackward& k) {
  const int64_t cols = k.x.cols(), stripes = stripes_of(k.x.rows(), cols, kRowBlocks);
  if (cols == 0) return;
  std::size_t offset = 0;
  auto* partial = take_workspace<float>(q, offset, stripes * cols, ActivationBackward::kName);
  launch_rows<true>(q, k.f, k.dx, k.dy, k.x, k.bias, stripes, partial);
  if (k.dbias) launch_sum_partials<1>(q, {{column_sums(k.dbias)}}, partial, stripes, cols);
}

void compute(CudaQueue& q, const Dropout& k) {
  const bool packed = aligned16(k.y.view, k.x);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    launch_groups(
        q, k.x.size(),
        DropoutBody<T>{k.y.view.as<T>(), k.x.as<T>(), dropout_call(k.p, k.site, k.step, k.x.cols()),
                       packed, k.y.accumulate, k.x.cols() % kGroup == 0});
  });
}

void compute(CudaQueue& q, const Add& k) {
  if (!k.out.accumulate) {  // nothing is faster than the runtime's own copy
    WEFT_CUDA_CHECK(cudaMemcpyAsync(k.out.view.data, k.x.data,
                                    static_cast<std::size_t>(k.x.bytes()), cudaMemcpyDeviceToDevice,
                                    q.stream));
    return;
  }
  const bool packed = aligned16(k.out.view, k.x);
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    launch_groups(q, k.x.size(), CopyBody<T, T>{k.out.view.as<T>(), k.x.as<T>(), packed, true});
  });
}

void compute(CudaQueue& q, const SumOf& k) {
  dispatch_cuda(k.out.dtype, [&]<class T>() {
    SumBody<T> body{.out = k.out.as<T>(), .xs = {}, .terms = 0, .packed = aligned16(k.out)};
    for (const TensorView& x : k.xs) {
      body.xs[body.terms++] = x.as<T>();
      body.packed = body.packed && aligned16(x);
    }
    launch_groups(q, k.out.size(), body);
  });
}

void compute(CudaQueue& q, const Cast& k) {
  const bool packed = aligned16(k.y, k.x);
  dispatch_cuda(k.y.dtype, [&]<class Y>() {
    dispatch_cuda(k.x.dtype, [&]<class X>() {
      launch_groups(q, k.x.size(), CopyBody<Y, X>{k.y.as<Y>(), k.x.as<X>(), packed, false});
    });
  });
}
}  // namespace weft
