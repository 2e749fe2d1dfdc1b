// SPDX-License-Identifier: MIT
// Embeddings on CUDA. Forward: a warp for each row. Backward, for each table: rows of dy are listed
// by table row (embedding_listing.cuh), and warps add runs of kRun listed rows. Where the list of a
// table row crosses the border of a run, a second kernel adds the parts in order.
#include "kernels/device/dependent_launch.cuh"
#include "kernels/layers/embedding.h"
#include "kernels/layers/embedding_listing.cuh"

#include <algorithm>

namespace weft {
namespace {
using namespace embedding;

constexpr int kWarps = kThreads / kWarp;
constexpr int kGroup = 8;
constexpr int kRowOfWarp = kWarp * kGroup;  // columns that a warp takes at a time
constexpr int kRun = 32;                    // listed rows of one warp: one for each lane to look up
constexpr int kAhead = 8;                   // rows loaded before they are added

template <class T>
struct Forward {
  T* y;
  const int32_t* tokens;
  Sequences sequences;
  const T *table, *start, *previous;
  const T* position[kMaxPositionAxes];
  uint32_t divisor[kMaxPositionAxes], position_rows[kMaxPositionAxes];
  int axes;
  int64_t rows, time, first, count, cols;
  const int32_t* first_at;
  bool packed;
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward(const Forward<T> a) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int64_t batch = row / a.count,
                t = (a.first_at ? *a.first_at : a.first) + row - batch * a.count;
  const int32_t* told =
      a.sequences.conditions ? a.sequences.conditions + batch * a.sequences.kinds : nullptr;
  // The summands: a token and its index on each axis, or the start vectors that the conditions
  // name.
  const T* base = t == 0
                      ? a.start + (told ? told[0] * a.cols : 0)
                      : a.table + static_cast<int64_t>(a.tokens[batch * a.time + t - 1]) * a.cols;
  const auto place = static_cast<uint32_t>(t == 0 ? 0 : a.sequences.place(batch, t - 1, a.time));
  const T* on_axis[kMaxPositionAxes];
#pragma unroll
  for (int i = 0; i < kMaxPositionAxes; ++i)
    if (t > 0 && i < a.axes)
      on_axis[i] = a.position[i] + place / a.divisor[i] % a.position_rows[i] * a.cols;
  const T* before =
      a.previous && t > 1
          ? a.previous + static_cast<int64_t>(a.tokens[batch * a.time + t - 2]) * a.cols
          : nullptr;
  for (int64_t c = threadIdx.x % kWarp * kGroup; c < a.cols; c += kRowOfWarp) {
    float sum[kGroup];
    load(sum, base + c, a.cols - c, a.packed);
    const auto add = [&](const T* from) {
      float term[kGroup];
      load(term, from + c, a.cols - c, a.packed);
#pragma unroll
      for (int j = 0; j < kGroup; ++j) sum[j] += term[j];
    };
#pragma unroll
    for (int i = 0; i < kMaxPositionAxes; ++i)
      if (t > 0 && i < a.axes) add(on_axis[i]);
    if (before) add(before);
    for (int64_t i = 1; t == 0 && told && i < a.sequences.kinds; ++i)
      add(a.start + told[i] * a.cols);
    store(a.y + row * a.cols + c, sum, a.cols - c, a.packed);
  }
}

template <class T>
struct RunSums {
  float* dtable;
  const T* dy;
  int64_t cols;
  // Columns first .. end - 1 are summed at a time. partial (runs, 2, width): of table rows cut by a
  // border.
  float* partial;
  int64_t first, end, width;
  bool packed, packed_out, accumulate;
};

// Where the sum of table row `owner`, ending with this run or before, belongs.
template <class T>
__device__ __forceinline__ void write_run(const RunSums<T>& a, const Listing& list, int64_t run,
                                          int32_t owner, const float (&sum)[kGroup], int64_t c) {
  const int64_t begin = run * kRun, end = min(list.entries, begin + kRun);
  const bool began_before = list.start[owner] < begin;
  const bool goes_on = list.start[owner + 1] > end;
  if (began_before || goes_on) {
    store(a.partial + (run * 2 + (began_before ? 0 : 1)) * a.width + (c - a.first), sum, a.end - c,
          a.packed_out);
  } else {
    store(a.dtable + owner * a.cols + c, sum, a.end - c, a.packed_out, a.accumulate);
  }
}

// Grid (runs / 8, column blocks): a warp adds the rows of one run in 256 columns.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_runs(const RunSums<T> a, const Listing list) {
  const int64_t run = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int count = static_cast<int>(min(static_cast<int64_t>(kRun), list.entries - run * kRun));
  if (count <= 0) return;
  const int64_t c = a.first + static_cast<int64_t>(blockIdx.y) * kRowOfWarp + lane * kGroup;
  const int32_t my_owner = lane < count ? list.owner[run * kRun + lane] : -1;
  const int32_t my_row = lane < count ? list.row[run * kRun + lane] : 0;
  float sum[kGroup] = {};
  int32_t owner = __shfl_sync(kFullWarp, my_owner, 0);
  for (int e = 0; e < count; e += kAhead) {
    float ahead[kAhead][kGroup];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t row = __shfl_sync(kFullWarp, my_row, e + i);
      load(ahead[i], a.dy + row * a.cols + c, e + i < count ? a.end - c : 0, a.packed);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int32_t next = __shfl_sync(kFullWarp, my_owner, e + i);
      if (e + i >= count) break;
      if (next != owner) {
        if (c < a.end) write_run(a, list, run, owner, sum, c);
#pragma unroll
        for (int j = 0; j < kGroup; ++j) sum[j] = 0.0f;
        owner = next;
      }
#pragma unroll
      for (int j = 0; j < kGroup; ++j) sum[j] += ahead[i][j];
    }
  }
  if (c < a.end) write_run(a, list, run, owner, sum, c);
}

// Grid (table rows, column blocks): 0 for table rows without entries, the sum over runs where there
// are more.
template <class T>
__global__ void __launch_bounds__(kThreads) join_runs(const RunSums<T> a, const Listing list) {
  const int64_t owner = blockIdx.x;
  const int64_t begin = list.start[owner], end = list.start[owner + 1];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t c = a.first + static_cast<int64_t>(blockIdx.y) * kRowOfWarp + lane * kGroup;
  float sum[kGroup] = {};
  if (begin == end) {
    if (warp == 0 && c < a.end && !a.accumulate)
      store(a.dtable + owner * a.cols + c, sum, a.end - c, a.packed_out);
    return;
  }
  const int64_t first_run = begin / kRun, runs = (end - 1) / kRun - first_run + 1;
  if (runs == 1) return;
  const int64_t share = (runs + kWarps - 1) / kWarps;
  for (int64_t i = warp * share; i < min(runs, (warp + 1) * share); ++i) {
    // The list began inside the first run, or at its very beginning; it was there before every
    // later one.
    const int64_t slot = (first_run + i) * 2 + (i == 0 ? 1 : 0);
    float part[kGroup];
    load(part, a.partial + slot * a.width + (c - a.first), a.end - c, a.packed_out);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) sum[j] += part[j];
  }
  __shared__ float of_warp[kWarps][kGroup][kWarp];
#pragma unroll
  for (int j = 0; j < kGroup; ++j) of_warp[warp][j][lane] = sum[j];
  __syncthreads();
  if (warp != 0 || c >= a.end) return;
  for (int w = 1; w < kWarps; ++w)
#pragma unroll
    for (int j = 0; j < kGroup; ++j) sum[j] += of_warp[w][j][lane];
  store(a.dtable + owner * a.cols + c, sum, a.end - c, a.packed_out, a.accumulate);
}

// Grid (column blocks, rows of dstart): the sum of row 0 over sequences, or over conditions with
// this row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_first_rows(float* dstart, const T* dy, const Sequences sequences, int64_t batch,
                   int64_t sequence, int64_t cols, bool accumulate) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= cols) return;
  float sum = 0.0f;
  for (int64_t b = 0; b < batch; ++b) {
    const float value = to_float(dy[b * sequence + c]);
    if (!sequences.conditions) sum += value;
    for (int64_t k = 0; k < sequences.kinds; ++k)
      if (sequences.conditions[b * sequences.kinds + k] == static_cast<int32_t>(blockIdx.y))
        sum += value;
  }
  float* out = dstart + blockIdx.y * cols + c;
  *out = accumulate ? *out + sum : sum;
}

// As many columns at a time as the rest of the workspace has room for.
template <class T>
void launch_table_sums(CudaQueue& q, Scratch s, const TensorView& dy, const GradView& dtable) {
  const int64_t cols = dy.cols(), runs = (s.list.entries + kRun - 1) / kRun;
  const auto room = static_cast<int64_t>((q.workspace_bytes - s.offset) / sizeof(float));
  const int64_t fits = room / std::max<int64_t>(1, 2 * runs),
                unit = fits < kRowOfWarp ? kGroup : kRowOfWarp;
  const int64_t width = std::min(cols, fits / unit * unit);
  WEFT_CHECK(width > 0, EmbeddingBackward::kName, ": ", q.workspace_bytes,
             " bytes of workspace are too few for ", s.list.entries, " tokens at a time");
  RunSums<T> a = {};
  a.partial = take_workspace<float>(q, s.offset, runs * 2 * width, EmbeddingBackward::kName);
  a.dtable = dtable.view.as<float>();
  a.dy = dy.as<T>();
  a.cols = cols;
  a.width = width;
  a.packed = aligned_rows(dy);
  a.packed_out = aligned_rows(dtable.view);
  a.accumulate = dtable.accumulate;
  for (a.first = 0; a.first < cols; a.first += width) {
    a.end = std::min(cols, a.first + width);
    const unsigned column_blocks = blocks_for(a.end - a.first, kRowOfWarp);
    if (runs > 0)
      sum_runs<<<dim3(blocks_for(runs, kWarps), column_blocks), kThreads, 0, q.stream>>>(a, s.list);
    join_runs<<<dim3(blocks_for(s.list.table_rows, 1), column_blocks), kThreads, 0, q.stream>>>(
        a, s.list);
  }
}

// Of the table whose row t is that of token t - shift.
template <class T>
void launch_token_sums(CudaQueue& q, const EmbeddingBackward& k, const GradView& dtable,
                       int shift) {
  if (!dtable || dtable.view.rows() == 0) return;
  const int64_t time = k.dy.shape[1], entries = k.dy.shape[0] * std::max<int64_t>(0, time - shift);
  Scratch s = take_scratch(q, entries, dtable.view.rows());
  launch_sorted_listing(q, s, [&](int32_t* keys, int32_t* rows) {
    list_tokens<<<blocks_for(entries, kThreads), kThreads, 0, q.stream>>>(
        keys, rows, k.tokens.as<int32_t>(), entries, time, shift);
  });
  launch_table_sums<T>(q, s, k.dy, dtable);
}

template <class T>
void backward(CudaQueue& q, const EmbeddingBackward& k) {
  const int64_t batch = k.dy.shape[0], time = k.dy.shape[1], cols = k.dy.cols();
  const int64_t entries = batch * std::max<int64_t>(0, time - 1);
  WEFT_CHECK(batch * time < 0x7fffffff, "embedding_backward: at most 2^31 - 1 rows at a time, got ",
             shape_text(k.dy));
  const Sequences sequences = sequences_of(k.offsets, k.positions, k.conditions);
  if (k.dstart) {
    const auto rows = static_cast<unsigned>(k.dstart.view.rows());
    WEFT_CHECK(rows <= 65535, "embedding_backward: at most 65,535 start vectors, got ", rows);
    sum_first_rows<<<dim3(blocks_for(cols, kThreads), rows), kThreads, 0, q.stream>>>(
        k.dstart.view.as<float>(), k.dy.as<T>(), sequences, time > 0 ? batch : 0, time * cols, cols,
        k.dstart.accumulate);
  }
  launch_token_sums<T>(q, k, k.dtable, 1);
  launch_token_sums<T>(q, k, k.dprevious, 2);
  for (int axis = 0; axis < k.axes; ++axis) {
    if (!k.daxis[axis]) continue;
    Scratch s = take_scratch(q, entries, k.daxis[axis].view.shape[0]);
    if (k.offsets || k.positions) {
      launch_sorted_listing(q, s, [&](int32_t* keys, int32_t* rows) {
        list_places<<<blocks_for(entries, kThreads), kThreads, 0, q.stream>>>(
            keys, rows, sequences, entries, time, k.divisor[axis], s.list.table_rows);
      });
    } else {
      const int64_t threads = std::max(entries, s.list.table_rows + 1);
      list_positions<<<blocks_for(threads, kThreads), kThreads, 0, q.stream>>>(
          s.list, std::max<int64_t>(2, time), k.divisor[axis]);
    }
    launch_table_sums<T>(q, s, k.dy, k.daxis[axis]);
  }
}
}  // namespace

void compute(CudaQueue& q, const EmbeddingForward& k) {
  if (k.y.size() == 0) return;
  dispatch_cuda(k.y.dtype, [&]<class T>() {
    Forward<T> a = {};
    a.y = k.y.as<T>();
    a.tokens = k.tokens.as<int32_t>();
    a.sequences = sequences_of(k.offsets, k.positions, k.conditions);
    a.table = k.table.as<T>();
    a.start = k.start.as<T>();
    a.previous = k.previous.or_null<T>();
    a.axes = k.axes;
    a.count = k.y.shape[1];
    a.rows = k.y.shape[0] * a.count;
    a.time = k.tokens.shape[1];
    a.first = k.first;
    a.first_at = k.first_at;
    a.cols = k.y.cols();
    a.packed = aligned_rows(k.y) && aligned16(k.table, k.start, k.previous);
    for (int axis = 0; axis < k.axes; ++axis) {
      a.position[axis] = k.axis[axis].table.as<T>();
      constexpr int64_t kMost = 0xffffffff;  // no place is beyond it
      a.divisor[axis] = static_cast<uint32_t>(std::min(k.axis[axis].divisor, kMost));
      a.position_rows[axis] = static_cast<uint32_t>(std::min(k.axis[axis].table.shape[0], kMost));
      a.packed = a.packed && aligned16(k.axis[axis].table);
    }
    launch_dependent(q, forward<T>, blocks_for(a.rows, kWarps), kThreads, a);
  });
}

void compute(CudaQueue& q, const EmbeddingBackward& k) {
  dispatch_cuda(k.dy.dtype, [&]<class T>() { backward<T>(q, k); });
}
}  // namespace weft
