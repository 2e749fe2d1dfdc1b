// SPDX-License-Identifier: MIT
// PackedMaps: parts of equal edge that do not depend on each other share a pass.
#include "src/patterns/packed_maps.h"

#include "src/patterns/pattern.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr std::size_t kAlignment = 16;  // kernels copy 16 bytes at a time

// Lays arrays down one after the other; with no image it only counts.
class Writer {
 public:
  Writer(void* image, void* base)
      : image_(static_cast<char*>(image)),
        base_(static_cast<char*>(base)) {}

  // Where the array lies once the image is at its base.
  template <class T>
  const T* put(const std::vector<T>& values) {
    const std::size_t at = used_, bytes = values.size() * sizeof(T);
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (image_ && bytes) std::memcpy(image_ + at, values.data(), bytes);
    return reinterpret_cast<const T*>(base_ + at);
  }

  std::size_t used() const { return used_; }

 private:
  char *image_, *base_;
  std::size_t used_ = 0;
};

// Whether each aligned group of `run` slots holds successive positions; empty only behind the
// sequence.
bool follows(const std::vector<int32_t>& order, std::size_t run, int64_t n) {
  for (std::size_t first = 0; first < order.size(); first += run)
    for (std::size_t i = 1; i < run; ++i) {
      const int64_t expected = order[first] < 0 ? -1 : order[first] + static_cast<int64_t>(i);
      if (order[first + i] != (expected < n ? expected : -1)) return false;
    }
  return true;
}

// The longest of 64, 32, 16 and 8, up to `longest`, that holds; 0: none.
int32_t run_of(const std::vector<int32_t>& order, int64_t n, int32_t longest) {
  for (int32_t run = longest; run >= 8; run /= 2)
    if (follows(order, static_cast<std::size_t>(run), n)) return run;
  return 0;
}

TileMap put(Writer& out, const TileTables& t) {
  TileMap map;
  map.query_tiles = t.query_tiles();
  map.key_tiles = t.key_tiles();
  map.query_order = out.put(t.query_order);
  map.key_order = out.put(t.key_order);
  map.row_start = out.put(t.row_start);
  map.row_tile = out.put(t.row_tile);
  map.row_mask = out.put(t.row_mask);
  map.col_start = out.put(t.col_start);
  map.col_tile = out.put(t.col_tile);
  map.col_mask = out.put(t.col_mask);
  map.col_turn = out.put(t.col_turn);
  map.row_schedule = out.put(t.row_schedule);
  map.col_schedule = out.put(t.col_schedule);
  map.masks = out.put(t.masks);
  map.masks_transposed = out.put(t.masks_transposed);
  return map;
}
}  // namespace

PackedMaps::PackedMaps(const AttentionPattern& pattern, int heads, Lengths n, int64_t head_size,
                       int edge)
    : n_(n),
      groups_(pattern.groups(heads)) {
  for (int head = 0; head < heads; ++head) group_of_head_.push_back(pattern.group(head));
  for (int group = 0; group < groups_; ++group) {
    const auto found = std::ranges::find(group_of_head_, group);
    WEFT_CHECK(found != group_of_head_.end(), pattern.name(), ": group ", group, " of ", groups_,
               " has no head");
    std::vector<PatternPart> parts;
    pairs_.emplace_back();
    const auto first = static_cast<int>(found - group_of_head_.begin());
    if (pattern.most_keys(first)) continue;  // content has maps of its own
    pattern.parts(first, parts);
    WEFT_CHECK(!parts.empty() && parts.size() <= AttentionMaps::kMaxPasses / 2, pattern.name(),
               ": a head has ", parts.size(), " parts; 1 to ", AttentionMaps::kMaxPasses / 2,
               " work");
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto& [part, head] = parts[p];
      TileTables tables = edge ? build_tile_tables(*part, head, n, edge)
                               : build_best_tables(*part, head, n, head_size);
      pairs_.back() += tables.pairs;
      add(group, std::move(tables), n.queries == n.keys ? part->band(head, n.keys) : Band{}, p > 0);
    }
  }
  Writer count(nullptr, nullptr);
  for (const TileTables& t : tables_) put(count, t);
  const std::vector<TileMap> maps(groups_);
  for (std::size_t p = 0; p < passes_.size(); ++p) count.put(maps);
  count.put(group_of_head_);
  bytes_ = count.used();
}

// The parts of a group run in order: a part goes into the first pass of its edge after the group's
// last one.
void PackedMaps::add(int group, TileTables tables, const Band& band, bool accumulate) {
  const auto g = static_cast<std::size_t>(group);
  std::size_t first = passes_.size();
  while (first > 0 && passes_[first - 1].table_of_group[g] < 0) --first;
  while (first < passes_.size() && passes_[first].edge != tables.edge) ++first;
  if (first == passes_.size())
    passes_.push_back({tables.edge, std::vector<int>(groups_, -1), std::vector<bool>(groups_)});
  WEFT_CHECK(passes_.size() <= AttentionMaps::kMaxPasses, "attention: the heads need more than ",
             AttentionMaps::kMaxPasses, " passes; merge fewer patterns");
  passes_[first].table_of_group[g] = static_cast<int>(tables_.size());
  passes_[first].accumulate[g] = accumulate;
  tables_.push_back(std::move(tables));
  bands_.push_back(band);
}

Band PackedMaps::band_of(const Pass& pass) const {
  const std::vector<int>& table = pass.table_of_group;
  for (std::size_t g = 0; g < table.size(); ++g)
    if (table[g] < 0 || pass.accumulate[g] != pass.accumulate[0] ||
        !(bands_[table[g]] == bands_[table[0]]))
      return {};
  return table.empty() ? Band{} : bands_[table[0]];
}

AttentionMaps PackedMaps::write(void* image, void* base) const {
  Writer out(image, base);
  std::vector<TileMap> maps;
  for (const TileTables& t : tables_) maps.push_back(put(out, t));
  AttentionMaps result;
  result.passes = static_cast<int32_t>(passes_.size());
  result.groups = groups_;
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    AttentionPass& pass = result.pass[p];
    std::vector<TileMap> of_group(groups_);
    pass.query_run = pass.key_run = passes_[p].edge;
    for (std::size_t g = 0; g < of_group.size(); ++g) {
      if (passes_[p].table_of_group[g] < 0) continue;
      const auto table = static_cast<std::size_t>(passes_[p].table_of_group[g]);
      of_group[g] = maps[table];
      pass.query_run = run_of(tables_[table].query_order, n_.queries, pass.query_run);
      pass.key_run = run_of(tables_[table].key_order, n_.keys, pass.key_run);
      of_group[g].accumulate = passes_[p].accumulate[g];
      pass.query_tiles = std::max(pass.query_tiles, of_group[g].query_tiles);
      pass.key_tiles = std::max(pass.key_tiles, of_group[g].key_tiles);
      pass.visited = std::max(pass.visited, std::ssize(tables_[table].row_tile));
    }
    pass.edge = passes_[p].edge;
    pass.band = band_of(passes_[p]);
    pass.accumulate =
        std::all_of(passes_[p].accumulate.begin(), passes_[p].accumulate.end(), std::identity());
    pass.maps = out.put(of_group);
  }
  result.group_of_head = out.put(group_of_head_);
  return result;
}

const PairCount& PackedMaps::pairs(int head) const { return pairs_.at(group_of_head_.at(head)); }

const TileTables* PackedMaps::tables(int pass, int group) const {
  const int table = passes_.at(pass).table_of_group.at(group);
  return table < 0 ? nullptr : &tables_[table];
}
}  // namespace weft
