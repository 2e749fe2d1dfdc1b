// SPDX-License-Identifier: MIT
#include "kernels/sampling/decode_attention.h"
#include "tests/cases/attention_on_device.h"
#include "tests/cases/random_case.h"
#include "train/inspect/picture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace weft {
namespace {
using namespace attention_oracle;

// Later parts go on from a result that was rounded to the type of the tensors.
template <class T>
double rounding_of_parts(const AttentionMaps& maps) {
  constexpr double kUnit = dtype_of<T> == DType::f16    ? 0x1p-11
                           : dtype_of<T> == DType::bf16 ? 0x1p-8
                                                        : 0;
  return kUnit * (maps.passes - 1);
}

// Kernels sum in another order than the plain computation, which is exact where a query sees one
// key: a unit of f32 for each number of a head, and some for the sum over queries.
template <class T>
double rounding_of_sums(const Sizes& s) {
  return dtype_of<T> == DType::f64 ? 0 : 0x1p-23 * static_cast<double>(std::max(s.qk, s.v) + 32);
}

template <class T>
class KernelCheck {
 public:
  KernelCheck(Device& device, const SelftestCase& c)
      : device_(device),
        case_(c),
        inputs_(c.size, c.seed),
        exact_(c.size),
        plain_(c.size) {
    if (c.segments) inputs_.pack_documents(c.seed);
    exact_ = Data<double>(inputs_);
    plain_ = inputs_;
    dense_forward(*c.pattern, exact_);
    dense_backward(*c.pattern, exact_);
    dense_forward(*c.pattern, plain_);
    dense_backward(*c.pattern, plain_);
  }

  // parted: maps of each sequence's own in place of the segments.
  void check_form(AttentionForm form, const AttentionMaps& maps, bool parted = false) {
    inputs_.form = form;
    Data<T> first = inputs_, second = inputs_;
    run(first, maps, parted);
    run(second, maps, parted);
    const std::string name = device_.is_cuda() ? name_of(form) : "cpu";
    WEFT_CHECK(same_results(first, second), name, ": two runs differ in their bits");
    compare(name, first, form, rounding_of_parts<T>(maps));
  }

  // The last query and some before it, each against a cache in the rows that cache_rows() says.
  void check_decoding() {
    const Lengths n = case_.lengths();
    if (!case_.pattern->causal() || n.queries != n.keys || case_.segments ||
        dtype_of<T> == DType::f64)
      return;
    std::vector<int> heads;  // the first of each group
    std::vector<CacheRows> caches;
    for (int group = 0; group < case_.pattern->groups(case_.heads()); ++group) {
      heads.push_back(case_.first_head(group));
      caches.push_back(cache_rows(*case_.pattern, heads.back(), n.keys));
    }
    for (const int64_t i : {n.keys - 1, n.keys / 2, int64_t{0}}) decode(i, heads, caches);
  }

 private:
  void run(Data<T>& x, const AttentionMaps& of_all, bool parted) {
    OnDevice<T> on(device_, x);
    const AttentionMaps maps = parted ? on.part(of_all) : of_all;
    launch(device_.queue, on.forward(maps));
    launch(device_.queue, on.backward_with_scratch(maps));
    device_.synchronize();
    const std::string overwritten = on.written_beside();
    WEFT_CHECK(overwritten.empty(), "a kernel wrote out of the bounds of ", overwritten);
    on.fetch(x);
  }

  void compare(const std::string& name, const Data<T>& x, AttentionForm form, double parts) const {
    const double floor = floor_of<T>(form) + parts + rounding_of_sums<T>(case_.size);
    const auto near = [&](const char* what, const auto& got, const auto& plain, const auto& exact) {
      const double error = difference(got, exact), allowed = 2 * difference(plain, exact) + floor;
      WEFT_CHECK(error <= allowed, name, ": ", what, " has an error of ", error, ", ", allowed,
                 " is allowed (twice that of the plain computation, plus a floor)");
    };
    near("y", x.y, plain_.y, exact_.y);
    near("dq", x.dq, plain_.dq, exact_.dq);
    near("dk", x.dk, plain_.dk, exact_.dk);
    near("dv", x.dv, plain_.dv, exact_.dv);
    const double lse = difference(x.lse, exact_.lse);
    WEFT_CHECK(lse <= 1e-5, name, ": lse has an error of ", lse, ", 1e-5 is allowed");
    check_empty_rows(name, x);
  }

  void check_empty_rows(const std::string& name, const Data<T>& x) const {
    const int64_t queries = case_.lengths().queries, heads = case_.size.heads;
    const auto is_zero = [](const std::vector<T>& values, int64_t row, int64_t size) {
      return std::all_of(&values[row * size], &values[row * size] + size,
                         [](T value) { return static_cast<double>(value) == 0; });
    };
    for (int64_t b = 0; b < case_.size.batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t row = (b * queries + i) * heads + h;
          if (!std::isinf(exact_.lse[(b * heads + h) * queries + i])) continue;
          WEFT_CHECK(is_zero(x.y, row, case_.size.v) && is_zero(x.dq, row, case_.size.qk), name,
                     ": query ", i, " of head ", h,
                     " sees nothing, and its output or gradient is not 0");
        }
  }

  // A cache when position i has come: (B, rows, H, size), NaN where nothing is kept.
  std::vector<T> cache_of(const std::vector<T>& values, int64_t size, int64_t rows, int64_t i,
                          const std::vector<CacheRows>& caches) const {
    const int64_t keys = case_.lengths().keys, heads = case_.size.heads;
    std::vector<T> cache(case_.size.batch * rows * heads * size);
    std::memset(static_cast<void*>(cache.data()), 0xff, cache.size() * sizeof(T));
    for (int64_t b = 0; b < case_.size.batch; ++b)
      for (int64_t j = 0; j <= i; ++j)
        for (int64_t h = 0; h < heads; ++h)
          if (const int64_t row = caches[case_.pattern->group(static_cast<int>(h))].row_of[j];
              row >= 0)
            std::copy_n(&values[((b * keys + j) * heads + h) * size], size,
                        &cache[((b * rows + row) * heads + h) * size]);
    return cache;
  }

  void decode(int64_t i, const std::vector<int>& heads, const std::vector<CacheRows>& caches) {
    const Sizes& s = case_.size;
    int64_t rows = 1;
    std::vector<int32_t> key_rows, starts{0}, groups, keys;
    for (std::size_t g = 0; g < caches.size(); ++g) {
      rows = std::max(rows, caches[g].rows);
      keys.clear();
      case_.pattern->keys_of(heads[g], i, case_.lengths().keys, keys);
      for (const int32_t j : keys) key_rows.push_back(caches[g].row_of[j]);
      starts.push_back(static_cast<int32_t>(key_rows.size()));
    }
    for (int h = 0; h < case_.heads(); ++h) groups.push_back(case_.pattern->group(h));
    key_rows.push_back(0);  // so that there is memory to point to
    const auto matrix = [&](int64_t count, int64_t columns, const std::vector<T>& values) {
      GuardedMatrix<T> m(device_, count, columns);
      m.put(0, columns, values);
      return m;
    };
    const int64_t qk = s.heads * s.qk, v = s.heads * s.v;
    const auto row_of = [&](const auto& all, int64_t width) {
      std::decay_t<decltype(all)> out;
      for (int64_t b = 0; b < s.batch; ++b) {
        const auto* row = &all[(b * s.time + i) * width];
        out.insert(out.end(), row, row + width);
      }
      return out;
    };
    const GuardedMatrix<T> q = matrix(s.batch, qk, row_of(inputs_.q, qk)), y(device_, s.batch, v),
                           k = matrix(s.batch * rows, qk,
                                      cache_of(inputs_.k, s.qk, rows, i, caches)),
                           values =
                               matrix(s.batch * rows, v, cache_of(inputs_.v, s.v, rows, i, caches));
    const Tensor lists[] = {on_device(device_, key_rows), on_device(device_, starts),
                            on_device(device_, groups)};
    const auto list = [&](int which) {
      return static_cast<const int32_t*>(lists[which].view().data);
    };
    const auto view = [&](const GuardedMatrix<T>& m, int64_t time, int64_t size) {
      const int64_t width = s.heads * size;
      return HeadsView{m.data(), dtype_of<T>,  s.batch, time, s.heads,
                       size,     time * width, width,   size};
    };
    launch(device_.queue,
           AttentionDecode{view(y, 1, s.v), view(q, 1, s.qk), view(k, rows, s.qk),
                           view(values, rows, s.v), list(0), list(1), list(2), inputs_.scale()});
    device_.synchronize();
    WEFT_CHECK(y.kept_outside(v), "decoding: the kernel wrote out of the bounds of y");
    const auto exact = row_of(exact_.y, v);
    const double error = difference(y.get(0, v), exact),
                 allowed = 2 * difference(row_of(plain_.y, v), exact) +
                           floor_of<T>(AttentionForm::simple);
    WEFT_CHECK(error <= allowed, "decoding: query ", i, " has an error of ", error, ", ", allowed,
               " is allowed");
  }

  Device& device_;
  const SelftestCase& case_;
  Data<T> inputs_;
  Data<double> exact_;
  Data<T> plain_;
};

// ---- enumeration, tiles, cache rows and pictures against the predicate, pair by pair ----

// Which pairs of one head are attended, (queries, keys).
class PairSet {
 public:
  PairSet(int64_t queries, int64_t keys)
      : queries_(queries),
        keys_(keys),
        has_(static_cast<std::size_t>(queries * keys), 0) {}

  static PairSet defined(const AttentionPattern& pattern, int head, Lengths n) {
    PairSet pairs(n.queries, n.keys);
    for (int64_t i = 0; i < n.queries; ++i)
      for (int64_t j = 0; j < n.keys; ++j) pairs.has_[i * n.keys + j] = pattern.attends(head, i, j);
    return pairs;
  }

  bool has(int64_t i, int64_t j) const { return has_[i * keys_ + j] != 0; }

  void add(int64_t i, int64_t j, const char* what) {
    WEFT_CHECK(i >= 0 && i < queries_ && j >= 0 && j < keys_, what, ": pair (", i, ", ", j,
               ") is outside of the sequence");
    WEFT_CHECK(!has(i, j), what, ": pair (", i, ", ", j, ") is there twice");
    has_[i * keys_ + j] = 1;
  }

  int64_t count() const { return std::ranges::count(has_, 1); }

  void check_equal(const PairSet& defined, const char* what, int head) const {
    for (int64_t i = 0; i < queries_; ++i)
      for (int64_t j = 0; j < keys_; ++j)
        WEFT_CHECK(has(i, j) == defined.has(i, j), what, ", head ", head, ": query ", i,
                   has(i, j) ? " has key " : " lacks key ", j);
  }

 private:
  int64_t queries_, keys_;
  std::vector<char> has_;
};

// Every position has one place in the order; in a later part at most one.
void check_order(const int32_t* order, int64_t places, int64_t n, bool all, const char* what) {
  std::vector<int> count(n, 0);
  for (int64_t place = 0; place < places; ++place) {
    WEFT_CHECK(order[place] >= -1 && order[place] < n, what, ": place ", place, " holds position ",
               order[place], " of ", n);
    if (order[place] >= 0) ++count[order[place]];
  }
  for (int64_t position = 0; position < n; ++position)
    WEFT_CHECK(count[position] == 1 || (!all && count[position] == 0), what, ": position ",
               position, " has ", count[position], " places");
}

// One direction of a tile map.
struct Direction {
  int32_t tiles;
  const int32_t *start, *tile, *mask, *own, *other, *schedule;
  const uint64_t* masks;

  template <class F>
  void for_each_pair(int edge, F&& f) const {
    for (int32_t t = 0; t < tiles; ++t)
      for (int32_t e = start[t]; e < start[t + 1]; ++e) {
        WEFT_CHECK(e == start[t] || tile[e - 1] < tile[e], "tiles: those of tile ", t,
                   " do not ascend");
        for (int r = 0; r < edge; ++r)
          for (int k = 0; k < edge; ++k)
            if (mask[e] < 0 || (masks[int64_t{mask[e]} * edge + r] >> k & 1) != 0)
              f(own[int64_t{t} * edge + r], other[int64_t{tile[e]} * edge + k]);
      }
  }

  void check_schedule() const {
    std::vector<char> seen(tiles, 0);
    for (int32_t k = 0; k < tiles; ++k) {
      WEFT_CHECK(schedule[k] >= 0 && schedule[k] < tiles && !seen[schedule[k]], "schedule: entry ",
                 k, " is ", schedule[k]);
      seen[schedule[k]] = 1;
    }
  }
};
}  // namespace

std::vector<AttentionForm> check_kernels(Device& device, const SelftestCase& c,
                                         AttentionForm only) {
  const bool all = only == AttentionForm::automatic;
  const DeviceMaps maps(device, *c.pattern, c.heads(), c.lengths(), std::max(c.size.qk, c.size.v),
                        c.edge);
  std::vector<AttentionForm> forms = forms_on(device, c.dtype, c.size, maps.maps(), c.segments);
  WEFT_CHECK(!forms.empty(), "no form covers the case");
  if (!all) std::erase_if(forms, [&](AttentionForm form) { return form != only; });
  if (forms.empty()) return forms;
  dispatch_float(c.dtype, [&]<class T>() {
    KernelCheck<T> check(device, c);
    for (const AttentionForm form : forms) check.check_form(form, maps.maps());
    if (all && c.segments && c.lengths().queries == c.lengths().keys) {
      const SegmentMaps parted = {.tables = {}, .maps = maps.maps(), .segments = {}};
      for (const AttentionForm form : forms_on(device, c.dtype, c.size, parted.result(), false))
        check.check_form(form, maps.maps(), true);
    }
    if (all) check.check_decoding();
  });
  return forms;
}

void check_enumeration(const SelftestCase& c) {
  const Lengths n = c.lengths();
  std::vector<int32_t> keys;
  for (int head = 0; head < c.heads(); ++head) {
    const PairSet defined = PairSet::defined(*c.pattern, head, n);
    const int first = c.first_head(c.pattern->group(head));
    if (first != head) defined.check_equal(PairSet::defined(*c.pattern, first, n), "groups", head);
    PairSet listed(n.queries, n.keys);
    for (int64_t i = 0; i < n.queries; ++i) {
      keys.clear();
      c.pattern->keys_of(head, i, n.keys, keys);
      WEFT_CHECK(std::ranges::is_sorted(keys), "enumeration: keys of query ", i, " do not ascend");
      for (const int32_t j : keys) listed.add(i, j, "enumeration");
      WEFT_CHECK(!c.pattern->causal() || keys.empty() || keys.back() <= i, "causal: query ", i,
                 " sees key ", keys.back());
    }
    listed.check_equal(defined, "enumeration", head);
    WEFT_CHECK(needed_pairs(*c.pattern, head, n) == defined.count(),
               "needed pairs: ", needed_pairs(*c.pattern, head, n), " of ", defined.count());
  }
}

void check_tile_maps(const SelftestCase& c) {
  const Lengths n = c.lengths();
  const attention_oracle::HostMaps host(*c.pattern, c.heads(), n, std::max(c.size.qk, c.size.v),
                                        c.edge);
  const AttentionMaps& maps = host.maps;
  for (int group = 0; group < maps.groups; ++group) {
    const int head = c.first_head(group);
    PairSet rows(n.queries, n.keys), columns(n.queries, n.keys);
    bool first = true;
    for (int p = 0; p < maps.passes; ++p) {
      const TileMap& m = maps.pass[p].maps[group];
      const int edge = maps.pass[p].edge;
      if (m.query_tiles == 0 && m.key_tiles == 0) continue;
      WEFT_CHECK(m.accumulate == !first, "tiles: pass ", p, " of group ", group,
                 first ? " goes on from nothing" : " stores over an earlier one");
      first = false;
      check_order(m.query_order, int64_t{m.query_tiles} * edge, n.queries, !m.accumulate,
                  "query order");
      check_order(m.key_order, int64_t{m.key_tiles} * edge, n.keys, !m.accumulate, "key order");
      const Direction by_row{m.query_tiles, m.row_start, m.row_tile,     m.row_mask,
                             m.query_order, m.key_order, m.row_schedule, m.masks};
      const Direction by_column{m.key_tiles, m.col_start,   m.col_tile,     m.col_mask,
                                m.key_order, m.query_order, m.col_schedule, m.masks_transposed};
      by_row.check_schedule();
      by_column.check_schedule();
      by_row.for_each_pair(edge, [&](int64_t i, int64_t j) { rows.add(i, j, "tiles of queries"); });
      by_column.for_each_pair(edge,
                              [&](int64_t j, int64_t i) { columns.add(i, j, "tiles of keys"); });
    }
    WEFT_CHECK(!first, "tiles: group ", group, " has none");
    const PairSet defined = PairSet::defined(*c.pattern, head, n);
    rows.check_equal(defined, "tiles of queries", head);
    columns.check_equal(defined, "tiles of keys", head);
  }
}

void check_cache_rows(const SelftestCase& c) {
  const Lengths n = c.lengths();
  if (!c.pattern->causal() || n.queries != n.keys) return;
  std::vector<int32_t> keys;
  for (int group = 0; group < c.pattern->groups(c.heads()); ++group) {
    const int head = c.first_head(group);
    const CacheRows cache = cache_rows(*c.pattern, head, n.keys);
    std::vector<int64_t> holds(cache.rows, -1);  // row -> position
    for (int64_t i = 0; i < n.keys; ++i) {
      const int32_t row = cache.row_of[i];
      WEFT_CHECK(row >= -1 && row < cache.rows, "cache rows: position ", i, " has row ", row,
                 " of ", cache.rows);
      if (row >= 0) holds[row] = i;
      keys.clear();
      c.pattern->keys_of(head, i, n.keys, keys);
      for (const int32_t j : keys)
        WEFT_CHECK(cache.row_of[j] >= 0 && holds[cache.row_of[j]] == j, "cache rows: query ", i,
                   " of head ", head, " reads key ", j, ", which is not kept");
    }
  }
}

void check_picture(const SelftestCase& c) {
  const Lengths n = c.lengths();
  for (int group = 0; group < c.pattern->groups(c.heads()); ++group) {
    const int head = c.first_head(group);
    const ConnectivityGrid grid = connectivity(*c.pattern, head, n, std::max(n.queries, n.keys));
    WEFT_CHECK(grid.rows == n.queries && grid.columns == n.keys, "picture: ", grid.rows,
               " rows and ", grid.columns, " columns");
    for (int64_t i = 0; i < n.queries; ++i)
      for (int64_t j = 0; j < n.keys; ++j)
        WEFT_CHECK((grid.share[i * n.keys + j] != 0) == c.pattern->attends(head, i, j),
                   "picture, head ", head, ": pair (", i, ", ", j, ") has share ",
                   grid.share[i * n.keys + j]);
  }
}
}  // namespace weft
