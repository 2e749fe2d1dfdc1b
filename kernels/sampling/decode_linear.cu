// SPDX-License-Identifier: MIT
// DecodeLinear on CUDA: tensor cores where types and sizes allow, otherwise f32 multiply-adds,
// where a warp reads the weights of a column once for eight rows. The order of additions depends on
// K alone.
#include "kernels/sampling/decode_linear_mma.cuh"

#include <type_traits>

namespace weft {
namespace decode_linear {
namespace {
constexpr int kColumns = 8, kRows = 8;  // of a block; a warp for each column
constexpr int kGroup = 8;

template <class T>
__global__ void __launch_bounds__(kColumns* kWarp) warp_per_column(const Arguments<T> a) {
  __shared__ Statistics statistics[kRows];
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / a.column_blocks) * kRows;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t m = static_cast<int64_t>(blockIdx.x % a.column_blocks) * kColumns + warp;
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  if (a.norm_w) {
    row_statistics<1, false>(statistics + warp, a, first_row + warp);
    __syncthreads();
  }
  if (m >= a.cols) return;
  float sum[kRows] = {};
  for (int64_t k = lane * kGroup; k < a.inner; k += kWarp * kGroup) {
    float w[kGroup], norm_w[kGroup], norm_b[kGroup];
    load(w, a.w + m * a.inner + k, a.inner - k, a.packed);
    if (a.norm_w) {
      load(norm_w, a.norm_w + k, a.inner - k, a.packed);
      load(norm_b, a.norm_b + k, a.inner - k, a.packed);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first_row + r >= a.rows) break;
      float x[kGroup];
      load(x, a.x + (first_row + r) * a.inner + k, a.inner - k, a.packed);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) {
        if (a.norm_w)
          x[j] = to_float(from_float<T>(normalise(x[j], statistics[r], norm_w[j], norm_b[j])));
        sum[r] = fmaf(x[j], w[j], sum[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float total = warp_sum(sum[r]);
    if (lane != 0 || first_row + r >= a.rows) continue;
    const int64_t at = (first_row + r) * a.cols + m;
    const float v = activation(total + (a.b ? to_float(a.b[m]) : 0.0f), a);
    a.y[at] = from_float<T>(v + (a.residual ? to_float(a.residual[at]) : 0.0f));
  }
}

template <class T>
Arguments<T> arguments_of(const DecodeLinear& k) {
  Arguments<T> a = {};
  a.y = k.y.as<T>();
  a.x = k.x.as<T>();
  a.w = k.w.as<T>();
  a.b = k.b.or_null<T>();
  a.residual = k.residual.or_null<T>();
  a.norm_w = k.norm_w.or_null<float>();
  a.norm_b = k.norm_b.or_null<float>();
  a.rows = k.x.rows();
  a.cols = k.w.rows();
  a.inner = k.x.cols();
  a.eps = static_cast<float>(k.eps);
  a.activates = k.f.has_value();
  a.f = k.f.value_or(Activation::gelu);
  a.packed = aligned_rows(k.x) && aligned16(k.w, k.norm_w, k.norm_b);
  return a;
}
}  // namespace
}  // namespace decode_linear

void compute(CudaQueue& q, const DecodeLinear& k) {
  if (k.y.size() == 0) return;
  dispatch_cuda(k.x.dtype, [&]<class T>() {
    decode_linear::Arguments<T> a = decode_linear::arguments_of<T>(k);
    if constexpr (!std::is_same_v<T, float>) {
      // Columns go in pairs.
      if (a.packed && a.cols % 2 == 0 && aligned16(k.y, k.residual))
        return decode_linear::launch_mma(q, a);
    }
    a.column_blocks = blocks_for(a.cols, decode_linear::kColumns);
    const int64_t row_tiles = (a.rows + decode_linear::kRows - 1) / decode_linear::kRows;
    launch_dependent(q, decode_linear::warp_per_column<T>,
                     blocks_for(row_tiles * a.column_blocks, 1), decode_linear::kColumns * kWarp,
                     a);
  });
}
}  // namespace weft
