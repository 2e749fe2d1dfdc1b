// SPDX-License-Identifier: MIT
// QK-norm and rotary positions on CUDA. A warp takes a row: its lanes form groups of a power of
// two, a head each, eight features a lane. The angles of a row stay in registers; kAhead heads a
// group are in flight.
#include "kernels/layers/rotary.cuh"

#include <bit>

namespace weft {
namespace {
constexpr int kThreads = 256, kRowsOfBlock = kThreads / kWarp, kAhead = 4;

template <class T>
struct Call {
  T* x;         // qkv or dqkv
  const T* y;   // backward
  float* rstd;  // null: not kept
  int64_t rows, cols;
  int32_t time, heads;  // heads: of q and k together
  int lanes;            // of a head
  QkAngles angles;
};

__device__ __forceinline__ float head_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

template <class T, bool kBackward>
__global__ void __launch_bounds__(kThreads) qk_rows(const Call<T> a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int lane = threadIdx.x % kWarp, groups = kWarp / a.lanes, group = lane / a.lanes,
            feature = lane % a.lanes * 8;
  const bool inside = feature < a.angles.size;
  const float share = 1.0f / static_cast<float>(a.angles.size);
  float turn[8] = {1, 0, 1, 0, 1, 0, 1, 0};
  if (a.angles.table && inside)
    a.angles.read(turn, row / a.time, static_cast<int32_t>(row % a.time), feature);
  T* const x_row = a.x + row * a.cols + feature;
  const T* const y_row = kBackward && a.angles.norm ? a.y + row * a.cols + feature : nullptr;
  float* const rstd = a.rstd ? a.rstd + row * a.heads : nullptr;
  for (int first = group; first - group < a.heads; first += kAhead * groups) {
    Eight<T> x[kAhead] = {}, y[kAhead] = {};
    float scale[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int head = first + i * groups;
      scale[i] = 1;
      if (!inside || head >= a.heads) continue;
      x[i] = load_eight(x_row + head * a.angles.size);
      if (!kBackward || !y_row) continue;
      y[i] = load_eight(y_row + head * a.angles.size);
      scale[i] = rstd[head];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int head = first + i * groups;
      const bool there = inside && head < a.heads;
      float v[8], w[8];
      unpack(v, x[i]);
      unpack(w, kBackward ? y[i] : x[i]);
      if (a.angles.norm) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) sum = fmaf(v[j], w[j], sum);
        const float mean = head_sum(sum, a.lanes) * share;
        if constexpr (kBackward) {
#pragma unroll
          for (int j = 0; j < 8; ++j) v[j] = fmaf(-w[j], mean, v[j]);
        } else {
          scale[i] = rsqrtf(mean + a.angles.eps);
          if (there && rstd && feature == 0) rstd[head] = scale[i];
        }
      }
      rotate_eight(v, scale[i], turn, kBackward ? -1.0f : 1.0f);
      if (there) store_eight(x_row + head * a.angles.size, pack_eight<T>(v));
    }
  }
}

template <bool kBackward, class Kernel>
void launch(CudaQueue& q, const Kernel& k, const TensorView& x, const TensorView& y) {
  if (x.size() == 0) return;
  for (const TensorView* part : {&x, &y})
    WEFT_CHECK(!*part || aligned_rows(*part), "qk: rows must begin at multiples of 16 bytes, got ",
               shape_text(*part));
  WEFT_CHECK(aligned16(k.form.table),
             "qk: the table of angles must begin at a multiple of 16 bytes");
  dispatch_cuda(x.dtype, [&]<class T>() {
    const Call<T> a{
        .x = x.as<T>(),
        .y = y.or_null<T>(),
        .rstd = k.rstd.template or_null<float>(),
        .rows = x.rows(),
        .cols = x.cols(),
        .time = static_cast<int32_t>(x.shape[1]),
        .heads = static_cast<int32_t>(2 * k.heads),
        .lanes = static_cast<int>(std::bit_ceil(static_cast<unsigned>(k.qk_size / 8))),
        .angles = QkAngles(k.form, k.qk_size),
    };
    qk_rows<T, kBackward><<<blocks_for(a.rows, kRowsOfBlock), kThreads, 0, q.stream>>>(a);
  });
}
}  // namespace

void compute(CudaQueue& q, const QkForward& k) { launch<false>(q, k, k.qkv, {}); }

void compute(CudaQueue& q, const QkBackward& k) { launch<true>(q, k, k.dqkv, k.y); }
}  // namespace weft
