// SPDX-License-Identifier: MIT
// Argument checks that the CPU and CUDA forms share.
#include "kernels/attention/check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace weft {
namespace {
std::string shape_text(const HeadsView& x) {
  return str("(", x.batch, ", ", x.time, ", ", x.heads, ", ", x.size, ") ", name_of(x.dtype));
}

constexpr int64_t kSizeStep = 8, kLargestSize = 256;  // of heads, on CUDA

// (batch, time, heads, size) of `dtype`.
struct Expected {
  int64_t batch, time, heads;
  DType dtype;

  void heads_view(const char* name, const HeadsView& x, int64_t size) const {
    check_heads(name, x, batch, time, heads, size, dtype);
  }

  void rows(const char* name, const TensorView& x) const {
    WEFT_CHECK(x.rank == 3 && x.shape[0] == batch && x.shape[1] == heads && x.shape[2] == time &&
                   x.dtype == wide(dtype),
               "attention: expected ", name, " of shape (", batch, ", ", heads, ", ", time, ") ",
               name_of(wide(dtype)), ", got ", weft::shape_text(x), " ", name_of(x.dtype));
    WEFT_CHECK(x.data || batch * heads * time == 0, "attention: ", name, " has no data");
  }

  void segments(const char* name, const TensorView& x) const {
    WEFT_CHECK(x.rank == 2 && x.shape[0] == batch && x.shape[1] == time && x.dtype == DType::i32,
               "attention: expected ", name, " of shape (", batch, ", ", time, ") i32, got ",
               weft::shape_text(x), " ", name_of(x.dtype));
  }
};

void check_maps(const AttentionMaps& m) {
  WEFT_CHECK(
      m.passes > 0 && m.passes <= AttentionMaps::kMaxPasses && m.group_of_head && m.groups > 0,
      "attention: no tile maps");
  for (int p = 0; p < m.passes; ++p)
    WEFT_CHECK(m.pass[p].maps && (m.pass[p].edge == kTile || m.pass[p].edge == kSmallTile),
               "attention: pass ", p, " has no tile maps, or tiles of edge ", m.pass[p].edge, " (",
               kTile, " and ", kSmallTile, " work)");
}

// What forward and backward read: q, k, v, the maps and the segments. Gives the shapes of queries
// and keys.
template <class Kernel>
std::pair<Expected, Expected> check_inputs(const Kernel& f) {
  const Expected queries{f.q.batch, f.q.time, f.q.heads, f.q.dtype},
      keys{f.q.batch, f.k.time, f.q.heads, f.q.dtype};
  WEFT_CHECK(f.q.size > 0 && f.v.size > 0, "attention: heads of size ", f.q.size, " (q) and ",
             f.v.size, " (v); both must be at least 1");
  queries.heads_view("q", f.q, f.q.size);
  keys.heads_view("k", f.k, f.q.size);
  keys.heads_view("v", f.v, f.v.size);
  check_maps(f.maps);
  const bool both = f.segments.queries.data && f.segments.keys.data;
  WEFT_CHECK(both || (!f.segments.queries.data && !f.segments.keys.data), "attention: segments of ",
             f.segments.queries.data ? "queries" : "keys", " come without those of ",
             f.segments.queries.data ? "keys" : "queries", "; give both or neither");
  if (both) {
    queries.segments("segments.queries", f.segments.queries);
    keys.segments("segments.keys", f.segments.keys);
  }
  return {queries, keys};
}
}  // namespace

void check_heads(const char* name, const HeadsView& x, int64_t batch, int64_t time, int64_t heads,
                 int64_t size, DType dtype) {
  WEFT_CHECK(
      x.batch == batch && x.time == time && x.heads == heads && x.size == size && x.dtype == dtype,
      "attention: expected ", name, " of shape (", batch, ", ", time, ", ", heads, ", ", size, ") ",
      name_of(dtype), ", got ", shape_text(x));
  WEFT_CHECK(x.data || batch * time * heads * size == 0, "attention: ", name, " has no data");
}

void check_cuda_dtype(DType t) {
  WEFT_CHECK(t == DType::f32 || t == DType::f16 || t == DType::bf16,
             "attention on CUDA takes f32, f16 and bf16, got ", name_of(t),
             "; the CPU takes f64 too");
}

void check_cuda_rows(const char* name, const HeadsView& x) {
  const int64_t above = (std::max(x.size, kSizeStep) + kSizeStep - 1) / kSizeStep * kSizeStep;
  WEFT_CHECK(x.size == above && x.size <= kLargestSize, "attention on CUDA: heads of ", name,
             " have size ", x.size, "; multiples of 8 from 8 to 256 work, the nearest is ",
             std::min(above, kLargestSize));
  const int64_t bytes = size_of(x.dtype);
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
                       x.batch_stride * bytes % 16 == 0 && x.time_stride * bytes % 16 == 0 &&
                       x.head_stride * bytes % 16 == 0;
  WEFT_CHECK(aligned, "attention on CUDA: the rows of ", name,
             " must start at multiples of 16 bytes; strides are ", x.batch_stride, ", ",
             x.time_stride, " and ", x.head_stride, " elements of ", bytes, " bytes");
  WEFT_CHECK(x.time_stride >= 0 && x.time_stride * bytes <= 0xffffffff,
             "attention on CUDA: positions of ", name, " are ", x.time_stride,
             " elements apart; at most 4 GiB work");
}

void check(const AttentionForward& f) {
  const Expected queries = check_inputs(f).first;
  queries.heads_view("y", f.y, f.v.size);
  queries.rows("lse", f.lse);
}

void check(const AttentionBackward& g) {
  const auto [queries, keys] = check_inputs(g);
  queries.heads_view("y", g.y, g.v.size);
  queries.heads_view("dy", g.dy, g.v.size);
  queries.heads_view("dq", g.dq, g.q.size);
  keys.heads_view("dk", g.dk, g.q.size);
  keys.heads_view("dv", g.dv, g.v.size);
  queries.rows("lse", g.lse);
  queries.rows("delta", g.delta);
  WEFT_CHECK(!g.scratch.data || g.scratch.dtype == DType::f32,
             "attention: scratch must be f32, got ", name_of(g.scratch.dtype));
}
}  // namespace weft
