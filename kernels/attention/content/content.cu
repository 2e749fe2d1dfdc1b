// SPDX-License-Identifier: MIT
// A CUDA thread for each item of items.h and lists.h; labels and their order have
// kernels of their own.
#include "kernels/attention/content/lists.h"
#include "kernels/attention/launch.cuh"
#include "kernels/device/vector8.cuh"

#include <algorithm>

namespace weft {
namespace {
using content::data_of, content::kThreads;

// A warp for kLabelRows positions of a (batch, head). Its queries wait in shared memory, `pitch`
// elements apart; so do kDirections of the directions, which the warps of a block share: eight
// features of one after the other, those of a half of a hash from a multiple of eight on. What a
// lane reads of them serves kLabelQueries.
constexpr int kLabelQueries = 2, kLabelRows = kLabelQueries * kWarp, kMostLabelWarps = 4,
              kDirections = kMostHashColumns;

// Queries first .. of one batch and head to shared memory, `pitch` elements apart; behind the last
// of `left` queries, the last one again.
template <class T>
__device__ __forceinline__ void stage_queries(const Labels& k, T* queries, int pitch, int count,
                                              int left, int64_t first, int64_t pair) {
  const int size = static_cast<int>(k.q.size);
  for (int i = threadIdx.x; i < count * (size / 8); i += blockDim.x) {
    const int row = i / (size / 8), d = i % (size / 8) * 8;
    store_eight(queries + row * pitch + d,
                load_eight(content::row_at<const T>(k.q, pair / k.q.heads,
                                                    first + min(row, left - 1), pair % k.q.heads) +
                           d));
  }
}

template <class T>
__global__ void __launch_bounds__(kMostLabelWarps* kWarp, 4)
    label_kernel(const __grid_constant__ Labels k, int pitch) {
  extern __shared__ uint4 staged[];
  const int threads = blockDim.x, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
            of_block = threads / kWarp * kLabelRows, size = static_cast<int>(k.q.size),
            columns = static_cast<int>(k.directions.shape[1]), half = columns / 2,
            aligned = half + 7 & ~7;
  T* const queries = reinterpret_cast<T*>(staged);
  float* const rows = reinterpret_cast<float*>(queries + of_block * pitch);
  const int64_t pieces = (k.q.time + of_block - 1) / of_block, pair = blockIdx.x / pieces,
                h = pair % k.q.heads, first = blockIdx.x % pieces * of_block,
                pairs = k.q.batch * k.q.heads;
  const int left = static_cast<int>(min(k.q.time - first, int64_t{of_block}));
  stage_queries(k, queries, pitch, of_block, left, first, pair);
  const T* own = queries + (warp * kLabelRows + lane) * pitch;
  // Of the rows j and 8 + j behind two places.
  const auto products = [&](float(&s)[kLabelQueries][16], int place, int other) {
    content::dots(s, own, kWarp * pitch, size, [=](int j, int d) {
      return rows + d * kDirections + (j < 8 ? place + j : other + j - 8) * 8;
    });
  };
  for (int r = 0; r < k.labels.shape[0]; ++r) {
    content::Largest<kLabelQueries, false> cluster;
    content::Largest<kLabelQueries, true> first_half, second_half;
    for (int from = 0; from < columns; from += kDirections) {
      const int count = min(kDirections, columns - from),
                places = k.centroids ? count + 15 & ~15 : 2 * aligned;
      __syncthreads();
      for (int i = threadIdx.x; i < places * (size / 4); i += threads) {
        const int four = i % (size / 4), place = i / (size / 4),
                  row = k.centroids       ? min(place, count - 1)
                        : place < aligned ? min(place, half - 1)
                                          : half + min(place - aligned, half - 1);
        reinterpret_cast<float4*>(rows)[(four / 2 * kDirections + place) * 2 + four % 2] =
            reinterpret_cast<const float4*>(content::directions_of(k, r, h) +
                                            (from + row) * size)[four];
      }
      __syncthreads();
      float s[kLabelQueries][16];
      for (int c = 0; k.centroids && c < count; c += 16) {
        products(s, c, c + 8);
        cluster.template take<0, 16>(s, from + c);
      }
      for (int c = 0; !k.centroids && c < half; c += 8) {
        products(s, c, aligned + c);
        first_half.template take<0, 8>(s, c), second_half.template take<8, 16>(s, c);
      }
    }
    for (int i = 0; i < kLabelQueries; ++i)
      if (const int row = warp * kLabelRows + i * kWarp + lane; row < left)
        data_of<int32_t>(k.labels)[(r * pairs + pair) * k.q.time + first + row] =
            k.centroids ? cluster.place[i]
                        : first_half.of_signed(i, half) * columns + second_half.of_signed(i, half);
  }
}

// A thread block sorts a set; each warp has a piece of the positions. counts[warp][label] becomes
// the slot of the next member that the warp meets.
constexpr int kSortWarps = 32;

__global__ void __launch_bounds__(kSortWarps* kWarp) sort_kernel(const __grid_constant__ Labels k) {
  extern __shared__ int32_t counts[];
  constexpr int kSortThreads = kSortWarps * kWarp;
  const int time = static_cast<int>(k.q.time), labels = static_cast<int>(k.starts.shape[1]) - 1,
            thread = threadIdx.x, lane = thread % kWarp,
            piece = (time + kSortThreads - 1) / kSortThreads * kWarp,
            begin = thread / kWarp * piece, end = min(time, begin + piece);
  const int64_t set = blockIdx.x;
  const auto* of_set = data_of<const int32_t>(k.labels) + set * time;
  auto *starts = data_of<int32_t>(k.starts) + set * (labels + 1),
       *order = data_of<int32_t>(k.order) + set * k.order.shape[1],
       *sorted = data_of<int32_t>(k.sorted) + set * time;
  int32_t *own = counts + thread / kWarp * labels, *totals = counts + kSortWarps * labels;
  // Counts the members of the piece, and calls f(position, the count of its label before it).
  const auto label_of = [&](int t) { return t < end ? of_set[t] : -1; };
  const auto count = [&](auto&& f) {
    int label = label_of(begin + lane);
    for (int t = begin + lane, next; t - lane < end; t += kWarp, label = next) {
      next = label_of(t + kWarp);
      const int counted = label < 0 ? 0 : own[label];
      unsigned same = __ballot_sync(kFullWarp, label >= 0);
      for (int bit = 0; labels - 1 >> bit; ++bit) {
        const bool set_here = label >> bit & 1;
        const unsigned others = __ballot_sync(kFullWarp, set_here);
        same &= set_here ? others : ~others;
      }
      const unsigned earlier = same & ((1u << lane) - 1);
      __syncwarp();
      if (label >= 0 && earlier == 0) own[label] = counted + __popc(same);
      __syncwarp();
      if (label >= 0) f(t, counted + __popc(earlier));
    }
  };
  for (int i = thread; i < kSortWarps * labels; i += kSortThreads) counts[i] = 0;
  __syncthreads();
  count([](int, int) {});
  __syncthreads();
  for (int g = thread; g < labels; g += kSortThreads) {
    totals[g] = 0;
    for (int w = 0; w < kSortWarps; ++w) totals[g] += counts[w * labels + g];
  }
  __syncthreads();
  for (int g = thread; g <= labels; g += kSortThreads) {
    int sum = 0;
    for (int before = 0; before < g; ++before) sum += totals[before];
    starts[g] = sum;
    for (int w = 0; w < kSortWarps && g < labels; ++w) {
      const int number = counts[w * labels + g];
      counts[w * labels + g] = sum;
      sum += number;
    }
  }
  __syncthreads();
  count([&](int t, int slot) { order[slot] = t; });
  for (int g = thread / kWarp; g < labels; g += kSortWarps)
    for (int slot = starts[g] + lane; slot < starts[g + 1]; slot += kWarp) sorted[slot] = g;
  for (int64_t slot = time + thread; slot < k.order.shape[1]; slot += kSortThreads)
    order[slot] = -1;
}
}  // namespace

void compute(CudaQueue& queue, const Labels& k) {
  content::directions_in_items(queue, k);
  const int64_t sets = k.labels.rows();
  dispatch_cuda(k.q.dtype, [&]<class T>() {
    constexpr int kApart = 16 / sizeof(T);  // neighbours read from other banks
    const int pitch = static_cast<int>(k.q.size) + kApart;
    const auto of_warp = static_cast<int>(kLabelRows * pitch * sizeof(T)),
               of_rows = static_cast<int>(kDirections * k.q.size * sizeof(float));
    constexpr int kShared = 96 << 10;
    const int warps = std::clamp((kShared - of_rows) / of_warp, 1, kMostLabelWarps);
    attention::start(
        queue, label_kernel<T>,
        blocks_for(k.q.batch * k.q.heads * blocks_for(k.q.time, warps * kLabelRows), 1),
        warps * kWarp, warps * of_warp + of_rows, k, pitch);
  });
  if (!k.order) return;
  const int64_t counts = (kSortWarps + 1) * (k.starts.cols() - 1);
  attention::start(queue, sort_kernel, static_cast<unsigned>(sets), kSortWarps * kWarp,
                   static_cast<int>(counts * sizeof(int32_t)), k);
}

void compute(CudaQueue& queue, const CentroidGradient& k) { content::in_items(queue, k); }

void compute(CudaQueue& queue, const SharedKeys& k) { content::in_items(queue, k); }

void compute(CudaQueue& queue, const OwnValues& k) { content::in_items(queue, k); }

void compute(CudaQueue& queue, const BlockMaps& k) { content::in_items(queue, k); }

void compute(CudaQueue& queue, const LabelList& k) { content::in_items(queue, k); }

void compute(CudaQueue& queue, const BlockList& k) { content::in_items(queue, k); }
}  // namespace weft
