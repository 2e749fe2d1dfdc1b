// SPDX-License-Identifier: MIT
// Attention of one query per sequence. A block takes one (batch, head); its groups of 8 lanes take
// the listed keys in turn, each with an online softmax of its own, and are merged in a fixed order.
// The first keys and values are prefetched before the kernel ahead, which computes the query, has
// ended.
#include "kernels/attention/check.h"
#include "kernels/device/dependent_launch.cuh"
#include "kernels/device/global_memory.cuh"
#include "kernels/device/vector8.cuh"
#include "kernels/sampling/decode_list.h"

namespace weft {
namespace attention {
namespace {
constexpr int kLanes = 8;  // of a group: 8 elements of each 64 of a row for a lane
constexpr int kGroupsOfWarp = kWarp / kLanes;
constexpr int64_t kShortList = 256;  // up to which four warps are enough

template <class T>
__device__ __forceinline__ const T* row_of(const HeadsView& view, int64_t b, int64_t t, int64_t h) {
  return static_cast<const T*>(view.data) + b * view.batch_stride + t * view.time_stride +
         h * view.head_stride;
}

// A lane's share of a row: 8 elements from 64 * part + 8 * lane on in each part; zeros beyond the
// true size.
template <class T, int kParts>
struct Share {
  Eight<T> part[kParts];

  static __device__ __forceinline__ int first(int p) {
    return p * 64 + static_cast<int>(threadIdx.x) % kLanes * 8;
  }

  __device__ __forceinline__ void read(const T* row, int64_t size) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      part[p] = first(p) < size ? load_eight(row + first(p)) : Eight<T>{};
  }

  __device__ __forceinline__ void write(T* row, int64_t size) const {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      if (first(p) < size) store_eight(row + first(p), part[p]);
  }

  __device__ __forceinline__ void values(int p, float (&out)[8]) const { unpack(out, part[p]); }
};

// A softmax over some of the keys: sums relative to e^top.
template <class T, int kParts>
struct Partial {
  float top = -INFINITY, sum = 0, y[kParts][8] = {};

  __device__ void rescale(float to) {
    const float shrink = top == to ? 1.0f : expf(top - to);
    top = to;
    sum *= shrink;
    for (auto& part : y)
      for (float& value : part) value *= shrink;
  }

  __device__ void add(float score, const Share<T, kParts>& v) {
    if (score > top) rescale(score);
    const float p = expf(score - top);
    sum += p;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float values[8];
      v.values(part, values);
#pragma unroll
      for (int i = 0; i < 8; ++i) y[part][i] = fmaf(p, values[i], y[part][i]);
    }
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

// The partials of the warps, one after the other, to y.
template <class T, int kWarps, int kParts>
__device__ __forceinline__ void merge_warps(const Partial<T, kParts>& partial, T* out,
                                            int64_t size) {
  __shared__ float top[kWarps], sum[kWarps], y[kWarps][kParts * 64];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (lane < kLanes) {
    top[warp] = partial.top;
    sum[warp] = partial.sum;
    for (int part = 0; part < kParts; ++part)
      for (int i = 0; i < 8; ++i) y[warp][part * 64 + lane * 8 + i] = partial.y[part][i];
  }
  __syncthreads();
  float highest = top[0];
  for (int w = 1; w < kWarps; ++w) highest = fmaxf(highest, top[w]);
  for (int64_t column = threadIdx.x; column < size; column += kWarps * kWarp) {
    float total = 0, value = 0;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = top[w] == highest ? 1.0f : expf(top[w] - highest);
      total = fmaf(weight, sum[w], total);
      value = fmaf(weight, y[w][column], value);
    }
    out[column] = from_float<T>(total == 0 ? 0.0f : value / total);
  }
}

// The listed keys of one group of lanes, kAhead at a time: groups take them in turn.
template <class T, int kQk, int kV, int kAhead>
struct Keys {
  Share<T, kQk> k[kAhead];
  Share<T, kV> v[kAhead];
  int64_t row[kAhead];  // -1: the list is at its end, or the key is out of sight

  __device__ __forceinline__ void read(const AttentionDecode& d, const DecodeList& list, int64_t b,
                                       int64_t h, int at, int stride, int64_t own) {
    const int64_t first_row = d.first_row ? d.first_row[h] : 0;
    const auto* first_key = static_cast<const int32_t*>(d.first_key.data);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      row[i] = at + i * stride < list.count ? first_row + list.keys[at + i * stride] : -1;
    if (first_key) {
      const int32_t* positions = d.key_positions + (list.keys - d.keys);
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (row[i] >= 0 && positions[at + i * stride] < first_key[b]) row[i] = -1;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (row[i] < 0 || row[i] == own) continue;  // the row at hand is not there yet
      k[i].read(row_of<T>(d.k, b, row[i], h), d.k.size);
      v[i].read(row_of<T>(d.v, b, row[i], h), d.v.size);
    }
  }
};

// Prefetches keys and values of later turns into the L2 cache: a line for each lane of the group.
template <class T>
__device__ __forceinline__ void ask_for_later(const AttentionDecode& d, const DecodeList& list,
                                              int64_t b, int64_t h, int first, int stride) {
  constexpr int kLine = 128 / sizeof(T);
  const int64_t first_row = d.first_row ? d.first_row[h] : 0;
  const int lane = threadIdx.x % kLanes, of_key = static_cast<int>(d.k.size + kLine - 1) / kLine;
  for (int at = first; at < list.count; at += stride) {
    const int64_t row = first_row + list.keys[at];
    const T* line = lane < of_key ? row_of<T>(d.k, b, row, h) + lane * kLine
                                  : row_of<T>(d.v, b, row, h) + (lane - of_key) * kLine;
    if (lane < of_key || (lane - of_key) * kLine < d.v.size) device::prefetch_l2(line);
  }
}

template <class T, int kQk>
__device__ __forceinline__ void read_query(float (&q)[kQk][8], const AttentionDecode& d, int64_t b,
                                           int64_t h) {
  Share<T, kQk> share;
  share.read(row_of<T>(d.q, b, 0, h), d.q.size);
#pragma unroll
  for (int p = 0; p < kQk; ++p) share.values(p, q[p]);
}

// By one group of lanes.
template <class T, int kQk, int kV>
__device__ __forceinline__ void put_own_row(const AttentionDecode& d, int64_t b, int64_t h,
                                            int64_t own) {
  Share<T, kQk> k;
  Share<T, kV> v;
  k.read(row_of<T>(d.new_k, b, 0, h), d.k.size);
  v.read(row_of<T>(d.new_v, b, 0, h), d.v.size);
  k.write(const_cast<T*>(row_of<T>(d.k, b, own, h)), d.k.size);
  v.write(const_cast<T*>(row_of<T>(d.v, b, own, h)), d.v.size);
}

template <class T, int kQk, int kV, int kAhead, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    decode_kernel(const __grid_constant__ AttentionDecode d) {
  constexpr int kGroups = kWarps * kGroupsOfWarp;
  const int64_t b = blockIdx.x / d.q.heads, h = blockIdx.x % d.q.heads;
  if (d.own_count.data) griddepcontrol_wait();  // a kernel ahead writes lists
  const DecodeList list(d, b, h);
  const int end = list.count;
  const int group = threadIdx.x / kLanes, warp = threadIdx.x / kWarp;
  const int64_t own = d.own_row ? d.own_row[h] : -1;
  griddepcontrol_launch_dependents();
  int first = warp * kGroupsOfWarp;  // the same for a warp, whose lanes exchange sums
  const int place = group % kGroupsOfWarp;
  Keys<T, kQk, kV, kAhead> keys;
  keys.read(d, list, b, h, first + place, kGroups, own);
  if (end - first <= kShortList)
    ask_for_later<T>(d, list, b, h, first + place + kAhead * kGroups, kGroups);
  griddepcontrol_wait();

  float q[kQk][8];
  read_query<T>(q, d, b, h);
  if (own >= 0 && group == 0) put_own_row<T, kQk, kV>(d, b, h, own);
  const float scale = static_cast<float>(d.scale);
  Partial<T, kV> partial;
  while (first < end) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * kGroups >= end) break;
      if (own >= 0 && keys.row[i] == own) {
        keys.k[i].read(row_of<T>(d.new_k, b, 0, h), d.k.size);
        keys.v[i].read(row_of<T>(d.new_v, b, 0, h), d.v.size);
      }
      float score = 0;
#pragma unroll
      for (int p = 0; p < kQk; ++p) {
        float k[8];
        keys.k[i].values(p, k);
#pragma unroll
        for (int c = 0; c < 8; ++c) score = fmaf(q[p][c], k[c], score);
      }
      score = warp_sum<kLanes>(score);
      if (keys.row[i] >= 0) partial.add(score * scale, keys.v[i]);
    }
    first += kAhead * kGroups;
    if (first < end) keys.read(d, list, b, h, first + place, kGroups, own);
  }
  for (int lanes = kLanes; lanes < kWarp; lanes *= 2) partial.merge_with_lane(lanes);
  T* out = static_cast<T*>(d.y.data) + b * d.y.batch_stride + h * d.y.head_stride;
  merge_warps<T, kWarps>(partial, out, d.v.size);
}

template <class T, int kQk, int kV, int kAhead>
void start(CudaQueue& queue, const AttentionDecode& d) {
  const unsigned blocks = blocks_for(d.q.batch * d.q.heads, 1);
  if (blocks == 0) return;
  if (d.longest > 0 && d.longest <= kShortList)
    return launch_dependent(queue, decode_kernel<T, kQk, kV, kAhead, 4>, blocks, 4 * kWarp, d);
  launch_dependent(queue, decode_kernel<T, kQk, kV, kAhead, 16>, blocks, 16 * kWarp, d);
}

// ---- GatherRows: a thread copies one element ----

constexpr int kThreads = 256;

template <class T>
struct Gather {
  T* y;
  const T* x;
  const int32_t* source;
  int64_t elements, rows, size, heads, time_stride, head_stride;
};

template <class T>
__global__ void __launch_bounds__(kThreads) gather(const Gather<T> a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.elements) return;
  const int64_t from = a.source[i / a.size % a.rows];
  if (from >= 0)
    a.y[i] = a.x[from / a.heads * a.time_stride + from % a.heads * a.head_stride + i % a.size];
}
}  // namespace
}  // namespace attention

// Heads in parts of 64 numbers.
void compute(CudaQueue& queue, const AttentionDecode& d) {
  check_cuda_dtype(d.q.dtype);
  check_cuda_rows("q", d.q);
  check_cuda_rows("k", d.k);
  check_cuda_rows("v", d.v);
  check_cuda_rows("y", d.y);
  if (d.new_k) check_cuda_rows("new_k", d.new_k);
  if (d.new_v) check_cuda_rows("new_v", d.new_v);
  dispatch_cuda(d.q.dtype, [&]<class T>() {
    using attention::start;
    if (d.q.size <= 64 && d.v.size <= 64) return start<T, 1, 1, 3>(queue, d);
    if (d.q.size <= 64 && d.v.size <= 128) return start<T, 1, 2, 3>(queue, d);
    if (d.q.size <= 128 && d.v.size <= 128) return start<T, 2, 2, 2>(queue, d);
    start<T, 4, 4, 1>(queue, d);
  });
}

void compute(CudaQueue& q, const GatherRows& k) {
  if (k.y.size() == 0) return;
  dispatch_cuda(k.y.dtype, [&]<class T>() {
    const attention::Gather<T> a = {
        k.y.as<T>(), k.x.row<const T>(0, 0, 0), k.source,       k.y.size(), k.y.shape[1], k.x.size,
        k.x.heads,   k.x.time_stride,           k.x.head_stride};
    attention::
        gather<<<blocks_for(a.elements, attention::kThreads), attention::kThreads, 0, q.stream>>>(
            a);
  });
}
}  // namespace weft
