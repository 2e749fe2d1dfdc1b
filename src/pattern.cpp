// SPDX-License-Identifier: MIT
// The table of patterns, and tile tables in a device's memory.
#include "src/pattern.h"

#include <algorithm>

#include "src/names.h"

namespace weft {

// Each is in the file of src/patterns/ that has its name.
PatternKind all_pattern();
PatternKind local_pattern();
PatternKind strided_pattern();
PatternKind fixed_pattern();

const std::vector<PatternKind>& patterns() {
  static const std::vector<PatternKind> table = {all_pattern(), local_pattern(), strided_pattern(),
                                                 fixed_pattern()};
  return table;
}

std::unique_ptr<AttentionPattern> make_pattern(const PatternSpec& spec, int heads) {
  WEFT_CHECK(heads >= 1, "attention needs at least one head, got ", heads);
  std::vector<std::string> known;
  for (const PatternKind& entry : patterns()) {
    if (spec.kind == entry.kind) return entry.make(spec, heads);
    known.push_back(entry.kind);
  }
  const std::string nearest = nearest_name(spec.kind, known);
  fail(str("unknown attention pattern '", spec.kind, "'; known: ", joined(known),
           nearest.empty() ? "" : str("; did you mean '", nearest, "'?")));
}

void check_pattern_field(const char* kind, const char* field, std::int64_t value) {
  if (value < 1 || value > kMaxPositions)
    fail(str("attention pattern '", kind, "': ", field, " must be between 1 and ", kMaxPositions, ", got ",
             value));
}

void AttentionPattern::keys_of(int head, std::int64_t i, std::vector<std::int32_t>& keys) const {
  std::vector<KeyRun> runs;
  key_runs(head, i, runs);
  for (const KeyRun& run : runs)
    for (std::int64_t j = run.begin; j < run.end; j += run.step) keys.push_back(static_cast<std::int32_t>(j));
}

std::int64_t needed_pairs(const AttentionPattern& pattern, int head, std::int64_t n) {
  std::vector<KeyRun> runs;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    for (const KeyRun& run : runs) pairs += run.size();
  }
  return pairs;
}

namespace {

// Copies host values into device memory that `memory` keeps alive.
template <class T>
const T* to_device(Device& device, const std::vector<T>& values, std::vector<Tensor>& memory) {
  if (values.empty()) return nullptr;
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  memory.emplace_back(*device.pool, Shape{bytes}, DType::u8, "patterns");
  device.upload(memory.back(), values.data());
  return static_cast<const T*>(memory.back().view().data);
}

TileMap to_device(Device& device, const TileTables& tables, std::vector<Tensor>& memory) {
  const auto copy = [&](const auto& values) { return to_device(device, values, memory); };
  TileMap map;
  map.query_tiles = tables.query_tiles();
  map.key_tiles = tables.key_tiles();
  map.query_order = copy(tables.query_order);
  map.key_order = copy(tables.key_order);
  map.row_start = copy(tables.row_start);
  map.row_tile = copy(tables.row_tile);
  map.row_mask = copy(tables.row_mask);
  map.col_start = copy(tables.col_start);
  map.col_tile = copy(tables.col_tile);
  map.col_mask = copy(tables.col_mask);
  map.row_schedule = copy(tables.row_schedule);
  map.col_schedule = copy(tables.col_schedule);
  map.masks = copy(tables.masks);
  map.masks_transposed = copy(tables.masks_transposed);
  return map;
}

}  // namespace

DeviceMaps::DeviceMaps(Device& device, const AttentionPattern& pattern, int heads, std::int64_t n) {
  const int groups = pattern.groups(heads);
  for (int head = 0; head < heads; ++head) group_of_head_.push_back(pattern.group(head));
  std::vector<TileMap> maps;
  for (int group = 0; group < groups; ++group) {
    const auto head = std::find(group_of_head_.begin(), group_of_head_.end(), group);
    WEFT_CHECK(head != group_of_head_.end(), pattern.name(), ": group ", group, " of ", groups,
               " has no head");
    const TileTables tables = build_tile_tables(pattern, static_cast<int>(head - group_of_head_.begin()), n);
    maps.push_back(to_device(device, tables, memory_));
    pairs_.push_back(tables.pairs);
    maps_.query_tiles = std::max(maps_.query_tiles, tables.query_tiles());
    maps_.key_tiles = std::max(maps_.key_tiles, tables.key_tiles());
  }
  maps_.groups = groups;
  maps_.maps = to_device(device, maps, memory_);
  maps_.group_of_head =
      to_device(device, std::vector<std::int32_t>(group_of_head_.begin(), group_of_head_.end()), memory_);
  for (const Tensor& tensor : memory_) bytes_ += static_cast<std::size_t>(tensor.view().bytes());
}

const PairCount& DeviceMaps::pairs(int head) const {
  return pairs_.at(static_cast<std::size_t>(group_of_head_.at(static_cast<std::size_t>(head))));
}

const DeviceMaps& MapCache::get(const AttentionPattern& pattern, std::int64_t n) {
  return known_.try_emplace({pattern.name(), n}, device_, pattern, heads_, n).first->second;
}

}  // namespace weft
