// SPDX-License-Identifier: MIT
// Attention of one query per sequence. A block takes one (batch, head); its 64 groups of 8 lanes take every
// 64th listed key, each with an online softmax of its own, and are merged in a fixed order, so that the
// result for a sequence does not depend on how many there are.
#include "kernels/attention_forms.h"
#include "kernels/cuda.cuh"

namespace weft::attention {
namespace {

constexpr int kWarps = 16, kLanes = 8, kGroups = kWarps * kWarp / kLanes;

// What a lane has of a row: 8 elements from 64 * part + 8 * lane in each of its parts; zeros beyond the true
// size.
template <class T, int kParts>
__device__ void load_parts(float (&x)[kParts][8], const HeadsView& view, std::int64_t b, std::int64_t t,
                           std::int64_t h) {
  const T* row =
      static_cast<const T*>(view.data) + b * view.batch_stride + t * view.time_stride + h * view.head_stride;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int first = part * 64 + threadIdx.x % kLanes * 8;
    load(x[part], row + first, view.size - first, true);
  }
}

// A softmax over some of the keys: sums relative to e^top.
template <int kParts>
struct Partial {
  float top = -INFINITY, sum = 0, y[kParts][8] = {};

  __device__ void rescale(float to) {
    const float shrink = top == to ? 1.0f : expf(top - to);
    top = to;
    sum *= shrink;
    for (auto& part : y)
      for (float& value : part) value *= shrink;
  }
  __device__ void add(float score, const float (&v)[kParts][8]) {
    if (score > top) rescale(score);
    const float p = expf(score - top);
    sum += p;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < 8; ++i) y[part][i] = fmaf(p, v[part][i], y[part][i]);
  }
  // Adds the partial of the lane whose number differs by `lanes`; both lanes get the same bits.
  __device__ void merge_with_lane(int lanes) {
    rescale(fmaxf(top, __shfl_xor_sync(kFullWarp, top, lanes)));
    sum += __shfl_xor_sync(kFullWarp, sum, lanes);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < 8; ++i) y[part][i] += __shfl_xor_sync(kFullWarp, y[part][i], lanes);
  }
};

template <class T, int kParts>
__global__ void __launch_bounds__(kWarps* kWarp) decode_kernel(const __grid_constant__ AttentionDecode d) {
  const std::int64_t b = blockIdx.x / d.q.heads, h = blockIdx.x % d.q.heads;
  const int list = d.group_of_head[h], end = d.key_start[list + 1];
  const std::int64_t first_row = d.first_row ? d.first_row[h] : 0;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = threadIdx.x / kLanes;
  const float scale = static_cast<float>(d.scale);
  float q[kParts][8];
  load_parts<T>(q, d.q, b, 0, h);
  Partial<kParts> partial;
  // `first` is the same for a warp, whose lanes exchange sums.
  for (int first = d.key_start[list] + warp * (kWarp / kLanes); first < end; first += kGroups) {
    const int at = first + group % (kWarp / kLanes), key = at < end ? d.keys[at] : d.keys[first];
    float k[kParts][8], v[kParts][8], score = 0;
    load_parts<T>(k, d.k, b, first_row + key, h);
    load_parts<T>(v, d.v, b, first_row + key, h);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < 8; ++i) score = fmaf(q[part][i], k[part][i], score);
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) score += __shfl_xor_sync(kFullWarp, score, lanes);
    if (at < end) partial.add(score * scale, v);
  }
  partial.merge_with_lane(8);
  partial.merge_with_lane(16);

  __shared__ float top[kWarps], sum[kWarps], y[kWarps][kParts * 64];
  if (lane < kLanes) {
    top[warp] = partial.top;
    sum[warp] = partial.sum;
    for (int part = 0; part < kParts; ++part)
      for (int i = 0; i < 8; ++i) y[warp][part * 64 + lane * 8 + i] = partial.y[part][i];
  }
  __syncthreads();
  const int column = threadIdx.x;
  if (column >= d.v.size) return;
  float highest = top[0];
  for (int w = 1; w < kWarps; ++w) highest = fmaxf(highest, top[w]);
  float total = 0, value = 0;
  for (int w = 0; w < kWarps; ++w) {
    const float weight = top[w] == highest ? 1.0f : expf(top[w] - highest);
    total = fmaf(weight, sum[w], total);
    value = fmaf(weight, y[w][column], value);
  }
  T* out = static_cast<T*>(d.y.data) + b * d.y.batch_stride + h * d.y.head_stride;
  out[column] = from_float<T>(total == 0 ? 0.0f : value / total);
}

}  // namespace

void decode(CudaQueue& queue, const AttentionDecode& d) {
  const unsigned blocks = weft::blocks_for(d.q.batch * d.q.heads, 1);
  if (blocks == 0) return;
  dispatch_cuda(d.q.dtype, [&]<class T>() {
    const auto kernel =
        d.q.size <= 128 && d.v.size <= 128 ? decode_kernel<T, 2> : decode_kernel<T, 4>;  // up to 256
    kernel<<<blocks, kWarps * kWarp, 0, queue.stream>>>(d);
  });
}

}  // namespace weft::attention
