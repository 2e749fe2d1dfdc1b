// SPDX-License-Identifier: MIT
// AttentionPattern: which keys a query sees, stated once, as in the paper. Tile tables
// (packed_maps.h), decoding and drawings are built from it; no other code knows the patterns by
// name.
#pragma once

#include "kernels/attention/tile_tables.h"
#include "src/patterns/spec.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
inline constexpr int64_t kMaxPositions = 1 << 30;  // positions and slots are stored as int32

// A pattern as seen by one of its heads.
struct PatternPart {
  const AttentionPattern* pattern = nullptr;
  int head = 0;
};

// Heads with dynamic sparsity: queries and keys decide what they see. Their tile maps are made for
// each batch (src/ops/dynamic_heads.h). No pattern of the core has such heads.
struct DynamicRange {
  PatternSpec spec;
  HeadRange heads;
  // What a batch's maps cost: the tiles of this pattern, `passes` times.
  std::shared_ptr<const AttentionPattern> tiles;
  int64_t passes = 1;
};

// A wrong order of slots costs time; a wrong run, group, part or band gives wrong results. Tests in
// tests/src/patterns compare all of them with attends(), and attends() with a second definition.
class AttentionPattern {
 public:
  virtual ~AttentionPattern() = default;

  // Kind and all numbers: "fixed(stride 128, c 32, num_verts 4)". Patterns of one name share
  // tables.
  virtual std::string name() const = 0;

  // The definition of S_i for one head: does query i see key j?
  virtual bool attends(int head, int64_t i, int64_t j) const = 0;

  // Appends S_i as runs, each key of attends() once, in time that grows with the number of runs.
  // Runs may go beyond the last key; the caller clips them.
  virtual void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const = 0;
  // The keys below `keys`, one by one, ascending, appended to `out`.
  void keys_of(int head, int64_t i, int64_t keys, std::vector<int32_t>& out) const;

  // No query sees a later key: what an autoregressive model needs.
  virtual bool causal() const { return true; }

  // The most keys of S_i that a query of a dynamic head sees; 0: all of them.
  virtual int64_t most_keys(int /*head*/) const { return 0; }

  virtual void dynamic(int /*heads*/, std::vector<DynamicRange>&) const {}  // those heads, appended

  // The longest sequences for which the pattern is made (a layout or a grid has them); 0: any.
  virtual Lengths lengths() const { return {}; }

  // Heads h and h' with group(h) == group(h') have equal S_i; groups are numbered from 0.
  virtual int groups(int heads) const { return heads > 0 ? 1 : 0; }

  virtual int group(int /*head*/) const { return 0; }

  // Patterns whose disjoint union is S_i of this head, appended, at most AttentionMaps::kMaxPasses
  // / 2. Each is computed in its own order of slots, and their softmaxes are merged.
  virtual void parts(int head, std::vector<PatternPart>& parts) const {
    parts.push_back({this, head});
  }

  // S_i of a head as a band (attention.h), if it is one for n queries and n keys and its stride
  // divides n. Band kernels read it instead of the tiles: a wrong band gives wrong results.
  virtual Band band(int /*head*/, int64_t /*n*/) const { return {}; }

  // The slot of a position in the order of the tiles, for n queries or n keys: tile t holds the
  // `edge` slots from t * edge on. Each position has its own slot; gaps let blocks start on a tile.
  // Called for parts only.
  virtual int64_t query_slot(int /*head*/, int64_t i, int64_t /*n*/) const { return i; }

  virtual int64_t key_slot(int head, int64_t j, int64_t n) const { return query_slot(head, j, n); }
};

// ---- for the files of the patterns ----

// PatternKind::fields of a kind that always reads the same fields.
std::function<std::vector<std::string>(const PatternSpec&)> reads(std::vector<std::string> fields);

template <class... Parts>
[[noreturn]] void refuse_pattern(const std::string& kind, const Parts&... why) {
  fail("attention pattern '", kind, "': ", why...);
}

// Throws Error unless 1 <= value <= kMaxPositions.
void check_pattern_field(const char* kind, const char* field, int64_t value);
// The same for a field without a default: 0 means that it is missing.
void require_pattern_field(const char* kind, const char* field, int64_t value);
// `globals`, ascending. Throws Error for one that is there twice or no position.
std::vector<int64_t> ascending_globals(const char* kind, std::vector<int64_t> globals);
std::string list_text(const std::vector<int64_t>&);  // "[1, 2]"

// The first slot of a tile that is not below `slots`.
inline int64_t tile_ceil(int64_t slots) { return (slots + kTile - 1) / kTile * kTile; }

// ---- counts ----

// The keys below `keys` in the runs of one query.
int64_t keys_in(const std::vector<KeyRun>& runs, int64_t keys);
// The number of attended pairs of one head, counted from the runs; the most of a dynamic head.
int64_t needed_pairs(const AttentionPattern&, int head, Lengths);

// ---- dynamic heads ----

std::vector<DynamicRange> dynamic_ranges(const AttentionPattern&, int heads);
// Throws Error where a head of the pattern is dynamic.
void refuse_dynamic(const AttentionPattern&, int heads, const char* who);
}  // namespace weft
