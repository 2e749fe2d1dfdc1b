// SPDX-License-Identifier: MIT
// A thread block for a sequence, or for the pairs of a query tile: a warp takes one of them after
// the other.
#include "kernels/attention/direction.cuh"
#include "kernels/attention/documents.h"
#include "kernels/device/cuda.cuh"

#include <algorithm>

namespace weft {
namespace {
constexpr int kThreads = 256;

// Each thread takes neighbouring rows; the last separator ahead of them comes from the threads
// before it.
__global__ void __launch_bounds__(kThreads) start_kernel(const __grid_constant__ DocumentStarts k) {
  __shared__ int last[kThreads];
  const int wanted = k.row ? *k.row : 0,
            rows = k.row ? wanted + 1 : static_cast<int>(k.tokens.shape[1]),
            each = (rows + kThreads - 1) / kThreads, first = static_cast<int>(threadIdx.x) * each,
            end = min(rows, first + each);
  const auto* tokens = static_cast<const int32_t*>(k.tokens.data) + blockIdx.x * k.tokens.shape[1];
  auto* out = static_cast<int32_t*>(k.start.data) + blockIdx.x * k.start.shape[1];
  const auto starts = [&](int t) { return t > 0 && tokens[t - 1] == k.separator; };
  int start = 0;
  for (int t = first; t < end; ++t)
    if (starts(t)) start = t;
  last[threadIdx.x] = start;
  __syncthreads();
  start = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) start = max(start, last[i]);
  for (int t = first; t < end; ++t) {
    if (starts(t)) start = t;
    if (t >= wanted) out[t - wanted] = start;
  }
}

// The segments of slots lane and lane + 32 of a tile; with tiles of 16 of slot lane % 16, twice.
template <int E>
struct LaneSegments {
  int number[2];

  __device__ LaneSegments(const int32_t* segments, const int32_t* order, int tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = order[static_cast<int64_t>(tile) * E + (threadIdx.x % 32 + 32 * i) % E];
      number[i] = t < 0 ? -1 : segments[t];
    }
  }

  __device__ bool all(int x) const { return number[0] == x && number[1] == x; }

  // By all lanes: word i has the slots of `other` that are of the same segment as slot lane + 32 i.
  __device__ void part(uint64_t (&word)[2], const LaneSegments& other) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) word[i] &= slots_of(number[i], other.number[0], other.number[1]);
  }

  // Of a lane's segment x, among those that the lanes have. A step for each segment there is: few.
  __device__ __noinline__ static uint64_t slots_of(int x, int low, int high) {
    uint64_t word = 0;
    for (unsigned left = kFullWarp; left;) {
      const int one = __shfl_sync(kFullWarp, x, __ffs(left) - 1);
      const uint64_t slots = uint64_t{__ballot_sync(kFullWarp, high == one)} << 32 |
                             __ballot_sync(kFullWarp, low == one);
      if (x == one && one >= 0) word = slots;
      left &= ~__ballot_sync(kFullWarp, x == one);
    }
    return word;
  }
};

// Words of a mask for slots lane and lane + 32.
template <int E>
__device__ void read(uint64_t (&word)[2], const uint64_t* masks, int mask) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    word[i] = mask < 0 ? ~uint64_t{0} >> (64 - E)
                       : masks[static_cast<int64_t>(mask) * E + (threadIdx.x % 32 + 32 * i) % E];
}

template <int E>
__device__ void write(uint64_t* masks, int e, const uint64_t (&word)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (threadIdx.x % 32 + 32 * i < E)
      masks[static_cast<int64_t>(e) * E + threadIdx.x % 32 + 32 * i] = word[i];
}

template <int E>
__global__ void __launch_bounds__(kThreads)
    segment_kernel(const __grid_constant__ SegmentMaps k,
                   const __grid_constant__ AttentionPass pass, int32_t* first, TileMap* made) {
  const int set = blockIdx.y, groups = k.maps.groups, tile = blockIdx.x, lane = threadIdx.x % 32;
  const TileMap& map = pass.maps[set % groups];
  const SegmentTable<E> out(first, set, pass);
  if (tile == 0 && threadIdx.x == 0)
    made[set] = out.in(map, order_of(k.orders, set / groups), set / groups >= k.stored);
  if (tile >= map.query_tiles) return;
  const auto* segments =
      static_cast<const int32_t*>(k.segments.data) + set / groups * k.segments.shape[1];
  const LaneSegments<E> own(segments, map.query_order, tile);
  const int one = __shfl_sync(0xffffffffu, own.number[0], 0);
  for (int e = map.row_start[tile] + threadIdx.x / 32; e < map.row_start[tile + 1];
       e += kThreads / 32) {
    const int other = map.row_tile[e], mask = map.row_mask[e];
    const LaneSegments<E> keys(segments, map.key_order, other);
    const bool alike = __all_sync(0xffffffffu, one >= 0 && own.all(one) && keys.all(one));
    uint64_t row[2], column[2];
    read<E>(row, map.masks, mask);
    read<E>(column, map.masks_transposed, mask);
    if (!alike) own.part(row, keys), keys.part(column, own);
    const bool none = __all_sync(0xffffffffu, row[0] == 0 && row[1] == 0);
    write<E>(out.masks, e, row);
    write<E>(out.masks_transposed, e, column);
    const bool all = alike && mask < 0;
    if (lane == 0) out.row_mask[e] = all ? -1 : none && E == kTile ? kSkip : e;
    for (int c = map.col_start[other] + lane; c < map.col_start[other + 1]; c += 32)
      if (map.col_tile[c] == tile)
        out.col_mask[c] = all ? -1 : none && E == kTile && k.orders.data ? kSkip : e;
  }
}

__global__ void __launch_bounds__(kThreads)
    reach_kernel(const __grid_constant__ SegmentMaps k, Band band, int32_t* reaches) {
  const int time = static_cast<int>(k.segments.shape[1]),
            rows = static_cast<int>(k.segments.shape[0]) * time,
            row = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= rows) return;
  const auto* start = static_cast<const int32_t*>(k.segments.data) + row / time * time;
  const Reaches r = reaches_of(band, start, row % time, time);
  reaches[row] = r.back;
  reaches[rows + row] = r.ahead;
}
}  // namespace

void compute(CudaQueue& queue, const DocumentStarts& k) {
  if (k.tokens.size() == 0) return;
  start_kernel<<<blocks_for(k.tokens.shape[0], 1), kThreads, 0, queue.stream>>>(k);
}

void compute(CudaQueue& queue, const SegmentMaps& k) {
  const int64_t sets = k.segments.shape[0] * k.maps.groups;
  if (sets == 0) return;
  int32_t* first = static_cast<int32_t*>(k.tables.data);
  for (int p = 0; p < k.maps.passes; ++p) {
    const AttentionPass& pass = k.maps.pass[p];
    const dim3 blocks(blocks_for(std::max(1, pass.query_tiles), 1), blocks_for(sets, 1));
    const auto kernel = pass.edge == kTile ? segment_kernel<kTile> : segment_kernel<kSmallTile>;
    kernel<<<blocks, kThreads, 0, queue.stream>>>(k, pass, first, k.made + p * sets);
    first += sets * segment_table_size(pass);
    if (k.documents && pass.band)
      reach_kernel<<<blocks_for(k.segments.size(), kThreads), kThreads, 0, queue.stream>>>(
          k, pass.band, k.reaches(p));
  }
}
}  // namespace weft
