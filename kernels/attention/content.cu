// SPDX-License-Identifier: MIT
// A CUDA thread for each item of content_items.h and content_lists.h; labels and their order have kernels of
// their own.
#include "kernels/attention/content_lists.h"
#include "kernels/attention/launch.cuh"
#include "kernels/device/vector8.cuh"

namespace weft {
namespace {
using content::data_of, content::kThreads;

// A thread block for kLabelRows positions of a set, whose queries wait in shared memory, `pitch` elements
// apart: what a lane reads of a direction serves kLabelQueries of them. Warps share the clusters, or have a
// half of the columns each.
constexpr int kLabelQueries = 4, kLabelRows = kLabelQueries * kWarp, kLabelWarps = 4;
template <class T>
__global__ void __launch_bounds__(kLabelWarps* kWarp)
    label_kernel(const __grid_constant__ Labels k, int pitch) {
  extern __shared__ uint4 staged[];
  __shared__ float tops[kLabelWarps][kLabelRows];
  __shared__ int32_t places[kLabelWarps][kLabelRows];
  T* const queries = reinterpret_cast<T*>(staged);
  const int64_t pieces = (k.q.time + kLabelRows - 1) / kLabelRows, set = blockIdx.x / pieces,
                first = blockIdx.x % pieces * kLabelRows, b = set / k.q.heads % k.q.batch, size = k.q.size;
  const int rows = static_cast<int>(min(k.q.time - first, int64_t{kLabelRows})), lane = threadIdx.x % kWarp,
            warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp, eights = static_cast<int>(size / 8),
            columns = static_cast<int>(k.directions.shape[1]);
  for (int i = threadIdx.x; i < kLabelRows * eights; i += blockDim.x) {
    const int row = i / eights, d = i % eights * 8;
    store_eight(
        queries + row * pitch + d,
        load_eight(content::row_at<const T>(k.q, b, first + min(row, rows - 1), set % k.q.heads) + d));
  }
  __syncthreads();
  const int each = k.centroids ? (columns + 8 * warps - 1) / (8 * warps) * 8 : columns / 2,
            begin = warp * each, end = min(columns, begin + each);
  int32_t best[kLabelQueries];
  float top[kLabelQueries];
  content::largest(best, top, queries + lane * pitch, kWarp * pitch, content::directions_of(k, set), begin,
                   end, size, !k.centroids);
  for (int i = 0; i < kLabelQueries; ++i)
    tops[warp][i * kWarp + lane] = top[i], places[warp][i * kWarp + lane] = best[i];
  __syncthreads();
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    int32_t label = places[0][row];
    if (!k.centroids) label = label * columns + places[1][row] - columns / 2;
    float most = tops[0][row];
    for (int w = 1; k.centroids && w < warps; ++w)
      if (tops[w][row] > most) most = tops[w][row], label = places[w][row];
    data_of<int32_t>(k.labels)[set * k.q.time + first + row] = label;
  }
}

// A thread block sorts a set; each warp has a piece of the positions. counts[warp][label] becomes the slot of
// the next member that the warp meets.
constexpr int kSortWarps = 32;
__global__ void __launch_bounds__(kSortWarps* kWarp) sort_kernel(const __grid_constant__ Labels k) {
  extern __shared__ int32_t counts[];
  constexpr int kSortThreads = kSortWarps * kWarp;
  const int time = static_cast<int>(k.q.time), labels = static_cast<int>(k.starts.shape[1]) - 1,
            thread = threadIdx.x, lane = thread % kWarp,
            piece = (time + kSortThreads - 1) / kSortThreads * kWarp, begin = thread / kWarp * piece,
            end = min(time, begin + piece);
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
  for (int64_t slot = time + thread; slot < k.order.shape[1]; slot += kSortThreads) order[slot] = -1;
}
}  // namespace

void compute(CudaQueue& queue, const Labels& k) {
  content::directions_in_items(queue, k);
  const int64_t sets = k.labels.rows();
  dispatch_cuda(k.q.dtype, [&]<class T>() {
    constexpr int kApart = 16 / sizeof(T);  // neighbours read from other banks
    const int pitch = static_cast<int>(k.q.size) + kApart;
    attention::start(queue, label_kernel<T>, blocks_for(sets * blocks_for(k.q.time, kLabelRows), 1),
                     (k.centroids ? kLabelWarps : 2) * kWarp,
                     static_cast<int>(kLabelRows * pitch * sizeof(T)), k, pitch);
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
