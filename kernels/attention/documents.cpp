// SPDX-License-Identifier: MIT
// Packed documents on the CPU: starts of documents in plain loops; tile maps and band reaches of
// each sequence, bit for bit those of the CUDA form.
#include "kernels/attention/documents.h"

#include "kernels/cpu.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {
void expect_rows(const char* what, const TensorView& x) {
  WEFT_CHECK(x.rank == 2 && x.dtype == DType::i32 && x.data, what, " must be (B, T) of i32, got ",
             shape_text(x), " of ", name_of(x.dtype));
}

// One pair of tiles: entry e of query tile `tile`.
template <int E>
void narrow(const TileMap& map, const SegmentTable<E>& out, const TensorView& segments, int64_t b,
            bool ordered, int32_t tile, int32_t e) {
  const int32_t other = map.row_tile[e], mask = map.row_mask[e];
  const int32_t* row = segments.as<int32_t>() + b * segments.shape[1];
  std::array<int32_t, E> query, key;  // segments of the slots, -1 where there is none
  for (int i = 0; i < E; ++i) {
    const int32_t q = map.query_order[int64_t{tile} * E + i],
                  k = map.key_order[int64_t{other} * E + i];
    query[i] = q < 0 ? -1 : row[q];
    key[i] = k < 0 ? -1 : row[k];
  }
  constexpr uint64_t kAll = ~uint64_t{0} >> (64 - E);
  uint64_t *rows = out.masks + int64_t{e} * E, *columns = out.masks_transposed + int64_t{e} * E;
  std::fill_n(columns, E, 0);
  bool all = mask < 0, none = true;
  for (int r = 0; r < E; ++r) {
    uint64_t same = 0;
    for (int c = 0; c < E; ++c) same |= uint64_t{query[r] >= 0 && query[r] == key[c]} << c;
    rows[r] = same & (mask < 0 ? kAll : map.masks[int64_t{mask} * E + r]);
    for (int c = 0; c < E; ++c) columns[c] |= (rows[r] >> c & 1) << r;
    all = all && same == kAll;
    none = none && rows[r] == 0;
  }
  const int32_t* of_key = map.col_tile + map.col_start[other];
  out.row_mask[e] = all ? -1 : none && E == kTile ? kSkip : e;
  out.col_mask[std::lower_bound(of_key, map.col_tile + map.col_start[other + 1], tile) -
               map.col_tile] = all                             ? -1
                               : none && E == kTile && ordered ? kSkip
                                                               : e;
}
}  // namespace

void check(const DocumentStarts& k) {
  expect_rows("document_starts: tokens", k.tokens);
  expect_rows("document_starts: start", k.start);
  WEFT_CHECK(
      k.start.shape[0] == k.tokens.shape[0] && k.start.shape[1] == (k.row ? 1 : k.tokens.shape[1]),
      "document_starts: start ", shape_text(k.start), " for tokens ", shape_text(k.tokens));
}

void compute(CpuQueue&, const DocumentStarts& k) {
  for (int64_t b = 0; b < k.tokens.shape[0]; ++b) {
    const int64_t first = k.row ? *k.row : 0, end = k.row ? first + 1 : k.tokens.shape[1];
    const int32_t* tokens = k.tokens.as<int32_t>() + b * k.tokens.shape[1];
    int32_t* out = k.start.as<int32_t>() + b * k.start.shape[1];
    int32_t start = 0;
    for (int64_t t = 0; t < end; ++t) {
      if (t > 0 && tokens[t - 1] == k.separator) start = static_cast<int32_t>(t);
      if (t >= first) out[t - first] = start;
    }
  }
}

int64_t SegmentMaps::table_size(const AttentionMaps& maps, int64_t batch, int64_t time) {
  int64_t size = maps.passes * 2 * batch * time;
  for (int p = 0; p < maps.passes; ++p)
    size += batch * maps.groups * segment_table_size(maps.pass[p]);
  return size;
}

int32_t* SegmentMaps::reaches(int pass) const {
  return tables.as<int32_t>() + tables.size() - (maps.passes - pass) * 2 * segments.size();
}

AttentionMaps SegmentMaps::result() const {
  AttentionMaps all = maps;
  all.of_sequence = maps.groups;
  for (int p = 0; p < maps.passes; ++p) {
    all.pass[p].maps = made + p * segments.shape[0] * maps.groups;
    if (documents && maps.pass[p].band)
      all.pass[p].reaches = reaches(p);
    else
      all.pass[p].band = {};
  }
  return all;
}

void check(const SegmentMaps& k) {
  expect_rows("segment_maps: segments", k.segments);
  WEFT_CHECK(k.maps.passes > 0 && k.maps.of_sequence == 0 && k.made,
             "segment_maps: needs maps of all sequences");
  WEFT_CHECK(!k.orders || (k.orders.rank == 2 && k.orders.dtype == DType::i32 &&
                           k.orders.shape[0] == k.segments.shape[0]),
             "segment_maps: orders must be (", k.segments.shape[0], ", slots) of i32, got ",
             shape_text(k.orders));
  const int64_t size =
      SegmentMaps::table_size(k.maps, k.segments.shape[0], k.documents ? k.segments.shape[1] : 0);
  WEFT_CHECK(k.tables.dtype == DType::i32 && k.tables.size() == size, "segment_maps: tables of ",
             k.tables.size(), " elements, expected ", size, " of i32");
}

void compute(CpuQueue&, const SegmentMaps& k) {
  const int64_t sets = k.segments.shape[0] * k.maps.groups;
  int32_t* first = k.tables.as<int32_t>();
  for (int p = 0; p < k.maps.passes; ++p) {
    const AttentionPass& pass = k.maps.pass[p];
    TileMap* made = k.made + p * sets;
    const auto narrow_all = [&]<int E>() {
#pragma omp parallel for if (sets * pass.visited * E > kParallelElements)
      for (int64_t set = 0; set < sets; ++set) {
        const TileMap& map = pass.maps[set % k.maps.groups];
        const SegmentTable<E> out(first, set, pass);
        made[set] =
            out.in(map, order_of(k.orders, set / k.maps.groups), set / k.maps.groups >= k.stored);
        for (int32_t tile = 0; tile < map.query_tiles; ++tile)
          for (int32_t e = map.row_start[tile]; e < map.row_start[tile + 1]; ++e)
            narrow<E>(map, out, k.segments, set / k.maps.groups, k.orders.data, tile, e);
      }
    };
    pass.edge == kTile ? narrow_all.operator()<kTile>() : narrow_all.operator()<kSmallTile>();
    first += sets * segment_table_size(pass);
    const int64_t rows = k.documents && pass.band ? k.segments.size() : 0,
                  time = k.segments.shape[1];
    int32_t* reaches = k.reaches(p);
    for (int64_t i = 0; i < rows; ++i) {
      const auto [back, ahead] =
          reaches_of(pass.band, k.segments.as<int32_t>() + i / time * time,
                     static_cast<int32_t>(i % time), static_cast<int32_t>(time));
      reaches[i] = back, reaches[rows + i] = ahead;
    }
  }
}
}  // namespace weft
