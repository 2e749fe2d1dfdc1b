// SPDX-License-Identifier: MIT
// Weighted sums of tensors on CUDA. A warp takes rows of 256 columns, eight a lane, whose weights
// stay in registers.
#include "kernels/device/column_sums.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/layers/mix.h"

#include <cstddef>

namespace weft {
namespace {
constexpr int kGroup = 8, kBlocksOfSm = 2, kMost = static_cast<int>(kMixMost);
constexpr int64_t kBlocks = 132 * kBlocksOfSm;  // the multiprocessors of an H200

template <class T>
struct Call {
  T* y;         // forward
  const T* dy;  // backward
  const T* x[kMost];
  T* dx[kMost];  // null: not wanted
  const float* w[kMost];
  float* partial;  // (stripes, terms, cols): first stage of dw
  int64_t rows, cols;
  bool add[kMost];
};

// Grid (column blocks, stripes) as in kernels/device/column_sums.cuh.
template <class T, bool kBackward, bool kPacked, int kTerms>
__global__ void __launch_bounds__(kStripeThreads, kBlocksOfSm) mix_rows(const Call<T> a) {
  const int64_t first_of_block = static_cast<int64_t>(blockIdx.x) * kStripeColumns;
  const int64_t first = first_of_block + threadIdx.x % kWarp * kGroup;
  const int64_t count = kPacked ? kGroup : a.cols - first;
  float w[kTerms][kGroup], sums[kTerms][kGroup] = {};
  if (first < a.cols) {
#pragma unroll
    for (int i = 0; i < kTerms; ++i) load(w[i], a.w[i] + first, count, kPacked);
  }
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kStripeWarps + threadIdx.x / kWarp;
       first < a.cols && row < a.rows; row += static_cast<int64_t>(gridDim.y) * kStripeWarps) {
    const int64_t at = row * a.cols + first;
    float x[kTerms][kGroup], out[kGroup] = {};
#pragma unroll
    for (int i = 0; i < kTerms; ++i) load(x[i], a.x[i] + at, count, kPacked);
    if constexpr (kBackward) {
      float dy[kGroup];
      load(dy, a.dy + at, count, kPacked);
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          out[j] = w[i][j] * dy[j];
          sums[i][j] = fmaf(dy[j], x[i][j], sums[i][j]);
        }
        if (a.dx[i]) store(a.dx[i] + at, out, count, kPacked, a.add[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
#pragma unroll
        for (int j = 0; j < kGroup; ++j) out[j] = fmaf(w[i][j], x[i][j], out[j]);
      }
      store(a.y + at, out, count, kPacked);
    }
  }
  if constexpr (kBackward) {
    __shared__ WarpSums<kTerms> of_warp;
    write_stripe<kTerms>(of_warp, a.partial, blockIdx.y, first_of_block, a.cols, sums);
  }
}

template <bool kBackward, int kTerms, class T>
void launch_terms(CudaQueue& q, const Call<T>& a, int64_t stripes, bool packed) {
  const dim3 grid(blocks_for(a.cols, kStripeColumns), static_cast<unsigned>(stripes));
  if (packed) mix_rows<T, kBackward, true, kTerms><<<grid, kStripeThreads, 0, q.stream>>>(a);
  if (!packed) mix_rows<T, kBackward, false, kTerms><<<grid, kStripeThreads, 0, q.stream>>>(a);
}

template <bool kBackward, class T>
void launch(CudaQueue& q, const Call<T>& a, std::size_t terms, int64_t stripes, bool packed) {
  if (terms == 1) launch_terms<kBackward, 1>(q, a, stripes, packed);
  if (terms == 2) launch_terms<kBackward, 2>(q, a, stripes, packed);
  if (terms == 3) launch_terms<kBackward, 3>(q, a, stripes, packed);
}

template <class T, class Kernel>
Call<T> call_of(const Kernel& k, const TensorView& of, bool& packed) {
  Call<T> a{};
  a.rows = of.rows(), a.cols = of.cols();
  packed = a.cols % kGroup == 0 && aligned16(of);
  for (std::size_t i = 0; i < k.x.size(); ++i) {
    a.x[i] = k.x[i].template as<T>();
    a.w[i] = k.w[i].template as<float>();
    packed = packed && aligned16(k.x[i], k.w[i]);
  }
  return a;
}

template <int kTerms>
void sum(CudaQueue& q, const MixBackward& k, const float* partial, int64_t stripes) {
  SumTargets<kTerms> targets;
  for (int i = 0; i < kTerms; ++i) targets.of[i] = column_sums(k.dw[static_cast<std::size_t>(i)]);
  launch_sum_partials<kTerms>(q, targets, partial, stripes, k.dy.cols());
}
}  // namespace

void compute(CudaQueue& q, const MixForward& k) {
  if (k.y.size() == 0) return;
  const int64_t stripes = stripes_of(k.y.rows(), k.y.cols(), kBlocks);
  dispatch_cuda(k.y.dtype, [&]<class T>() {
    bool packed = false;
    Call<T> a = call_of<T>(k, k.y, packed);
    a.y = k.y.as<T>();
    launch<false>(q, a, k.x.size(), stripes, packed);
  });
}

void compute(CudaQueue& q, const MixBackward& k) {
  const int64_t cols = k.dy.cols();
  if (k.dy.size() == 0) return;
  const std::size_t terms = k.x.size();
  const int64_t stripes = stripes_of(k.dy.rows(), cols, kBlocks);
  std::size_t offset = 0;
  auto* partial = take_workspace<float>(q, offset, stripes * static_cast<int64_t>(terms) * cols,
                                        MixBackward::kName);
  dispatch_cuda(k.dy.dtype, [&]<class T>() {
    bool packed = false;
    Call<T> a = call_of<T>(k, k.dy, packed);
    a.dy = k.dy.as<T>();
    a.partial = partial;
    for (std::size_t i = 0; i < terms; ++i) {
      a.dx[i] = k.dx[i].view.or_null<T>();
      a.add[i] = k.dx[i].accumulate;
      packed = packed && aligned16(k.dx[i].view);
    }
    launch<true>(q, a, terms, stripes, packed);
  });
  if (terms == 1) sum<1>(q, k, partial, stripes);
  if (terms == 2) sum<2>(q, k, partial, stripes);
  if (terms == 3) sum<3>(q, k, partial, stripes);
}
}  // namespace weft
