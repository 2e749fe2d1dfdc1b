// SPDX-License-Identifier: MIT
// Argument checks that the CPU and CUDA forms share.
#include "kernels/attention_check.h"

#include <utility>

namespace weft {
namespace {

std::string shape_text(const HeadsView& x) {
  return str("(", x.batch, ", ", x.time, ", ", x.heads, ", ", x.size, ") ", name_of(x.dtype));
}

// (batch, time, heads, size) of `dtype`.
struct Expected {
  std::int64_t batch, time, heads;
  DType dtype;

  void heads_view(const char* name, const HeadsView& x, std::int64_t size) const {
    WEFT_CHECK(x.batch == batch && x.time == time && x.heads == heads && x.size == size && x.dtype == dtype,
               "attention: expected ", name, " of shape (", batch, ", ", time, ", ", heads, ", ", size, ") ",
               name_of(dtype), ", got ", shape_text(x));
    WEFT_CHECK(x.data || batch * time * heads * size == 0, "attention: ", name, " has no data");
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
  WEFT_CHECK(m.passes > 0 && m.passes <= AttentionMaps::kMaxPasses && m.group_of_head && m.groups > 0,
             "attention: no tile maps");
  for (int p = 0; p < m.passes; ++p)
    WEFT_CHECK(m.pass[p].maps && (m.pass[p].edge == kTile || m.pass[p].edge == kSmallTile),
               "attention: pass ", p, " has no tile maps, or tiles of edge ", m.pass[p].edge, " (", kTile,
               " and ", kSmallTile, " work)");
}

// What forward and backward read: q, k, v, the maps and the segments. Gives the shapes of queries and keys.
template <class Kernel>
std::pair<Expected, Expected> check_inputs(const Kernel& f) {
  const Expected queries{f.q.batch, f.q.time, f.q.heads, f.q.dtype},
      keys{f.q.batch, f.k.time, f.q.heads, f.q.dtype};
  WEFT_CHECK(f.q.size > 0 && f.v.size > 0, "attention: heads of size ", f.q.size, " (q) and ", f.v.size,
             " (v); both must be at least 1");
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
  WEFT_CHECK(!g.scratch.data || g.scratch.dtype == DType::f32, "attention: scratch must be f32, got ",
             name_of(g.scratch.dtype));
}

void check(const AttentionDecode& d) {
  const Expected one{d.q.batch, 1, d.q.heads, d.q.dtype}, cache{d.q.batch, d.k.time, d.q.heads, d.q.dtype};
  one.heads_view("q", d.q, d.q.size);
  one.heads_view("y", d.y, d.v.size);
  cache.heads_view("k", d.k, d.q.size);
  cache.heads_view("v", d.v, d.v.size);
  WEFT_CHECK(static_cast<bool>(d.new_k) == static_cast<bool>(d.new_v) &&
                 static_cast<bool>(d.new_k) == static_cast<bool>(d.own_row),
             "attention: new_k, new_v and own_row come together");
  if (d.new_k) one.heads_view("new_k", d.new_k, d.q.size);
  if (d.new_v) one.heads_view("new_v", d.new_v, d.v.size);
  WEFT_CHECK(d.key_start && d.group_of_head, "attention: no lists of keys (key_start, group_of_head)");
}

}  // namespace weft
