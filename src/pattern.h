// SPDX-License-Identifier: MIT
// AttentionPattern: which keys a query may see, stated once, as in the paper. Tile tables, decoding and
// pictures all come from it; nothing else in the repository knows the patterns by name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "src/device.h"

namespace weft {

inline constexpr std::int64_t kMaxPositions = std::int64_t{1}
                                              << 30;  // positions and slots are stored as int32

// Positions begin, begin + step, ... below end.
struct KeyRun {
  std::int64_t begin = 0, end = 0, step = 1;
  std::int64_t size() const { return begin < end ? (end - begin + step - 1) / step : 0; }
};

class AttentionPattern {
 public:
  virtual ~AttentionPattern() = default;

  virtual std::string name() const = 0;  // with its numbers: "fixed(stride 128, c 32, num_verts 4)"

  // The definition of S_i for one head: may query i see key j?
  virtual bool attends(int head, std::int64_t i, std::int64_t j) const = 0;

  // S_i as runs, appended to `runs`: the same set as attends(), ascending and each key once, in time that
  // grows with the number of runs. `runs` is reused from call to call; keys beyond i must not appear in a
  // causal pattern.
  virtual void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const = 0;
  // The same, key by key, appended to `keys`.
  void keys_of(int head, std::int64_t i, std::vector<std::int32_t>& keys) const;

  // Heads h and h' with group(h) == group(h') have equal S_i; groups are numbered from 0.
  virtual int groups(int heads) const { return heads > 0 ? 1 : 0; }
  virtual int group(int /*head*/) const { return 0; }

  // The slot of a position in tile space, for sequences of length n; tile t holds slots t * kTile .. t *
  // kTile + kTile - 1. No two positions share a slot; slots may leave gaps (empty slots) so that parts start
  // on a tile. A bad order is slow and never wrong.
  virtual std::int64_t query_slot(int /*head*/, std::int64_t i, std::int64_t /*n*/) const { return i; }
  virtual std::int64_t key_slot(int /*head*/, std::int64_t j, std::int64_t /*n*/) const { return j; }
};

// What a config says of one pattern. Which fields a kind reads is stated in its file in src/patterns/.
struct PatternSpec {
  std::string kind = "fixed";
  std::int64_t stride = 128;   // l: window, column distance, or block length
  std::int64_t c = 32;         // fixed: summary positions at the end of each block
  std::int64_t num_verts = 1;  // fixed: number of distinct sub-blocks of width c that heads take in turn
};

struct PatternKind {
  const char* kind;
  const char* summary;  // one line for --help and error texts
  std::function<std::unique_ptr<AttentionPattern>(const PatternSpec&, int heads)> make;
};
// The table of patterns; a new one is a file in src/patterns/ and two lines in pattern.cpp.
const std::vector<PatternKind>& patterns();
// Throws Error that names the wrong field and lists what exists.
std::unique_ptr<AttentionPattern> make_pattern(const PatternSpec&, int heads);
// For the makers: throws Error unless 1 <= value <= kMaxPositions.
void check_pattern_field(const char* kind, const char* field, std::int64_t value);

// Exact number of attended (query, key) pairs of one head, and of pairs in the tiles that are visited.
struct PairCount {
  std::int64_t needed = 0, executed = 0;
  double waste() const { return needed ? static_cast<double>(executed) / static_cast<double>(needed) : 0; }
};

// The needed pairs alone, counted from the runs.
std::int64_t needed_pairs(const AttentionPattern&, int head, std::int64_t n);

// Host tables of one group of heads for length n: what a TileMap points to.
struct TileTables {
  std::vector<std::int32_t> query_order, key_order, row_start, row_tile, row_mask, col_start, col_tile,
      col_mask, row_schedule, col_schedule;
  std::vector<std::uint64_t> masks, masks_transposed;
  PairCount pairs;
  std::int32_t query_tiles() const { return static_cast<std::int32_t>(query_order.size()) / kTile; }
  std::int32_t key_tiles() const { return static_cast<std::int32_t>(key_order.size()) / kTile; }
};
// Built from key_runs(): time grows with the runs and the visited tiles, memory with the visited tiles.
TileTables build_tile_tables(const AttentionPattern&, int head, std::int64_t n);

// Tables of all head groups of a pattern in a device's memory, kept as long as this lives.
class DeviceMaps {
 public:
  DeviceMaps(Device&, const AttentionPattern&, int heads, std::int64_t n);
  const AttentionMaps& maps() const { return maps_; }
  const PairCount& pairs(int head) const;
  std::size_t bytes() const { return bytes_; }

 private:
  AttentionMaps maps_;
  std::vector<Tensor> memory_;
  std::vector<PairCount> pairs_;
  std::vector<int> group_of_head_;
  std::size_t bytes_ = 0;
};

// Shares DeviceMaps between the layers of a model: one for each (pattern name, n).
class MapCache {
 public:
  MapCache(Device& device, int heads) : device_(device), heads_(heads) {}
  const DeviceMaps& get(const AttentionPattern&, std::int64_t n);

 private:
  Device& device_;
  int heads_;
  std::map<std::pair<std::string, std::int64_t>, DeviceMaps> known_;
};

}  // namespace weft
