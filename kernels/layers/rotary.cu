// SPDX-License-Identifier: MIT
// QK-norm and rotary positions on CUDA. A warp takes a row: its lanes form groups of a power of
// two, a head each, eight features a lane. The angles of a row stay in registers; kAhead heads a
// group are in flight.
#include "kernels/device/column_sums.cuh"
#include "kernels/layers/rotary.cuh"

#include <bit>

namespace weft {
namespace {
constexpr int kThreads = 256, kRowsOfBlock = kThreads / kWarp, kAhead = 4;

template <class T>
struct Call {
  T* x;               // qkv or dqkv
  const T* y;         // backward
  float* rstd;        // null: not kept
  const float* gain;  // (heads / 2) of q, or null
  float* row_dgain;   // (rows, heads / 2), backward with a gain
  int64_t rows, cols;
  int32_t time, heads;  // heads: of q and k together
  int lanes;            // of a head
  QkAngles angles;
};

__device__ __forceinline__ float head_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

template <class T, bool kBackward, bool kGain>
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
        const bool gained = kGain && head < a.heads / 2;
        const float gain = gained ? __ldg(a.gain + head) : 1.0f;
        if constexpr (kBackward) {
          if (gained && there && feature == 0)
            a.row_dgain[row * (a.heads / 2) + head] =
                mean * static_cast<float>(a.angles.size) / gain;
          const float part = gained ? mean / gain : mean;
#pragma unroll
          for (int j = 0; j < 8; ++j) v[j] = fmaf(-w[j], part, gained ? gain * v[j] : v[j]);
        } else {
          scale[i] = rsqrtf(mean + a.angles.eps);
          if (there && rstd && feature == 0) rstd[head] = scale[i];
          scale[i] *= gain;
        }
      }
      rotate_eight(v, scale[i], turn, kBackward ? -1.0f : 1.0f);
      if (there) store_eight(x_row + head * a.angles.size, pack_eight<T>(v));
    }
  }
}

template <bool kBackward, class Kernel>
void launch(CudaQueue& q, const Kernel& k, const TensorView& x, const TensorView& y,
            float* row_dgain) {
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
        .gain = k.form.gain.template or_null<float>(),
        .row_dgain = row_dgain,
        .rows = x.rows(),
        .cols = x.cols(),
        .time = static_cast<int32_t>(x.shape[1]),
        .heads = static_cast<int32_t>(2 * k.heads),
        .lanes = static_cast<int>(std::bit_ceil(static_cast<unsigned>(k.qk_size / 8))),
        .angles = QkAngles(k.form, k.qk_size),
    };
    const unsigned blocks = blocks_for(a.rows, kRowsOfBlock);
    if (a.gain) qk_rows<T, kBackward, true><<<blocks, kThreads, 0, q.stream>>>(a);
    if (!a.gain) qk_rows<T, kBackward, false><<<blocks, kThreads, 0, q.stream>>>(a);
  });
}

struct RowGains {
  const float* of;  // (rows, heads)
  int64_t heads;

  __device__ void operator()(int64_t row, int64_t first, float (&terms)[8]) const {
    load(terms, of + row * heads + first, heads - first, false);
  }
};
}  // namespace

void compute(CudaQueue& q, const QkForward& k) { launch<false>(q, k, k.qkv, {}, nullptr); }

void compute(CudaQueue& q, const QkBackward& k) {
  launch<true>(q, k, k.dqkv, k.y, k.row_dgain.or_null<float>());
  if (!k.form.gain || !k.dgain) return;
  const RowGains of_rows{k.row_dgain.as<float>(), k.heads};
  launch_column_sums(q, column_sums(k.dgain), k.dqkv.rows(), k.heads, of_rows, QkBackward::kName);
}
}  // namespace weft
