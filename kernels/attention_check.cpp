// SPDX-License-Identifier: MIT
// Argument checks that the CPU and CUDA forms share.
#include "kernels/attention_check.h"

namespace weft {
namespace {

std::string shape_text(const HeadsView& x) {
  return str("(", x.batch, ", ", x.time, ", ", x.heads, ", ", x.size, ") ", name_of(x.dtype));
}

struct Expected {
  std::int64_t batch, time, heads;
  DType dtype;

  void heads_view(const char* name, const HeadsView& x, std::int64_t size) const {
    WEFT_CHECK(x.data || batch * time == 0, "attention: ", name, " has no data");
    WEFT_CHECK(x.batch == batch && x.time == time && x.heads == heads && x.size == size && x.dtype == dtype,
               "attention: expected ", name, " of shape (", batch, ", ", time, ", ", heads, ", ", size, ") ",
               name_of(dtype), ", got ", shape_text(x));
  }
  void rows(const char* name, const TensorView& x) const {
    WEFT_CHECK(x.data || batch * time == 0, "attention: ", name, " has no data");
    WEFT_CHECK(x.rank == 3 && x.shape[0] == batch && x.shape[1] == heads && x.shape[2] == time &&
                   x.dtype == wide(dtype),
               "attention: expected ", name, " of shape (", batch, ", ", heads, ", ", time, ") ",
               name_of(wide(dtype)), ", got ", weft::shape_text(x), " ", name_of(x.dtype));
  }
};

void check_maps(const AttentionMaps& m) {
  WEFT_CHECK(m.passes > 0 && m.passes <= AttentionMaps::kMaxPasses && m.group_of_head && m.groups > 0,
             "attention: no tile maps");
  for (int p = 0; p < m.passes; ++p)
    WEFT_CHECK(m.pass[p].maps && (m.pass[p].edge == kTile || m.pass[p].edge == kSmallTile),
               "attention: pass ", p, " has no tile maps, or tiles of edge ", m.pass[p].edge);
  WEFT_CHECK(m.passes == 1 && m.pass[0].edge == kTile, "attention: one pass of large tiles");
}

}  // namespace

void check(const AttentionForward& f) {
  const Expected e{f.q.batch, f.q.time, f.q.heads, f.q.dtype};
  e.heads_view("q", f.q, f.q.size);
  e.heads_view("k", f.k, f.q.size);
  e.heads_view("v", f.v, f.v.size);
  e.heads_view("y", f.y, f.v.size);
  e.rows("lse", f.lse);
  check_maps(f.maps);
}

void check(const AttentionBackward& g) {
  const Expected e{g.q.batch, g.q.time, g.q.heads, g.q.dtype};
  e.heads_view("q", g.q, g.q.size);
  e.heads_view("k", g.k, g.q.size);
  e.heads_view("v", g.v, g.v.size);
  e.heads_view("y", g.y, g.v.size);
  e.heads_view("dy", g.dy, g.v.size);
  e.heads_view("dq", g.dq, g.q.size);
  e.heads_view("dk", g.dk, g.q.size);
  e.heads_view("dv", g.dv, g.v.size);
  e.rows("lse", g.lse);
  e.rows("delta", g.delta);
  check_maps(g.maps);
}

void check(const AttentionDecode& d) {
  const Expected one{d.q.batch, 1, d.q.heads, d.q.dtype}, cache{d.q.batch, d.k.time, d.q.heads, d.q.dtype};
  one.heads_view("q", d.q, d.q.size);
  one.heads_view("y", d.y, d.v.size);
  cache.heads_view("k", d.k, d.q.size);
  cache.heads_view("v", d.v, d.v.size);
  WEFT_CHECK(d.key_start && d.group_of_head, "attention: no key lists");
}

}  // namespace weft
