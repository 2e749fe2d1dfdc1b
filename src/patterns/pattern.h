// SPDX-License-Identifier: MIT
// AttentionPattern: which keys a query may see, stated once, as in the paper. Tile tables (tile_tables.h),
// decoding and pictures all come from it; nothing else in the repository knows the patterns by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"

namespace weft {

inline constexpr std::int64_t kMaxPositions = std::int64_t{1}
                                              << 30;  // positions and slots are stored as int32

// Positions begin, begin + step, ... below end.
struct KeyRun {
  std::int64_t begin = 0, end = 0, step = 1;
  std::int64_t size() const {
    if (begin >= end) return 0;
    return step == 1 ? end - begin : (end - begin + step - 1) / step;
  }
  friend bool operator==(const KeyRun&, const KeyRun&) = default;
};

// Positions of the queries and of the keys: equal in self-attention.
struct Lengths {
  std::int64_t queries = 0, keys = 0;
  Lengths() = default;
  Lengths(std::int64_t n) : queries(n), keys(n) {}  // NOLINT: one length is both
  Lengths(std::int64_t q, std::int64_t k) : queries(q), keys(k) {}
  friend bool operator==(const Lengths&, const Lengths&) = default;
};

class AttentionPattern;

// A pattern as seen by one of its heads.
struct PatternPart {
  const AttentionPattern* pattern = nullptr;
  int head = 0;
};

class AttentionPattern {
 public:
  virtual ~AttentionPattern() = default;

  // With all its numbers, "fixed(stride 128, c 32, num_verts 4)": equal names share tables.
  virtual std::string name() const = 0;

  // The definition of S_i for one head: may query i see key j?
  virtual bool attends(int head, std::int64_t i, std::int64_t j) const = 0;

  // S_i as runs, appended to `runs`: the same set as attends(), each key once, in time that grows with the
  // number of runs. Runs may reach beyond the sequence: who asks clips them to its number of keys.
  virtual void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const = 0;
  // The keys below `keys`, one by one, ascending, appended to `out`.
  void keys_of(int head, std::int64_t i, std::int64_t keys, std::vector<std::int32_t>& out) const;

  // No query sees a later key: what an autoregressive model needs.
  virtual bool causal() const { return true; }

  // The lengths that the pattern is made for (a layout, a grid); 0: any. Shorter sequences see its beginning,
  // longer ones are refused.
  virtual Lengths lengths() const { return {}; }

  // Heads h and h' with group(h) == group(h') have equal S_i; groups are numbered from 0.
  virtual int groups(int heads) const { return heads > 0 ? 1 : 0; }
  virtual int group(int /*head*/) const { return 0; }

  // Patterns whose disjoint union is S_i of this head, appended: each is computed by itself, in its own order
  // of slots, and the results are merged. At most AttentionMaps::kMaxPasses / 2.
  virtual void parts(int head, std::vector<PatternPart>& parts) const { parts.push_back({this, head}); }

  // S_i of a head as a band (attention.h), if it is one for n queries and n keys.
  virtual Band band(int /*head*/, std::int64_t /*n*/) const { return {}; }

  // The slot of a position in tile space, for n queries or n keys; tile t holds slots t * edge .. t * edge +
  // edge - 1. No two positions share a slot; slots may leave gaps (empty slots) so that parts start on a
  // tile. A bad order is slow and never wrong. Only asked of parts.
  virtual std::int64_t query_slot(int /*head*/, std::int64_t i, std::int64_t /*n*/) const { return i; }
  virtual std::int64_t key_slot(int /*head*/, std::int64_t j, std::int64_t /*n*/) const { return j; }
};

// What a config says of one pattern. Each kind reads some of the fields (PatternKind::fields) and leaves the
// others alone; the config reader refuses keys that the kind does not read.
struct PatternSpec {
  std::string kind = "fixed";
  std::int64_t stride = 128;      // l: window, column distance, or block length
  std::int64_t c = 32;            // fixed: summary positions at the end of each block
  std::int64_t num_verts = 1;     // fixed: number of distinct sub-blocks of width c that heads take in turn
  std::int64_t block = 0;         // edge of the blocks of a block-level form; 0: exact positions
  std::int64_t vertsize = 1;      // fixed with blocks: c = vertsize * block
  bool causal = true;             // false: later keys are seen too
  std::vector<PatternSpec> of{};  // merged: patterns of the union; heads: patterns that heads take in turn

  // What any pattern may have besides (src/patterns/modified.cpp); 0 or empty: not there.
  std::int64_t prefix = 0;                // of a pattern that sees later keys: only those below `prefix`
  std::vector<std::int64_t> documents{};  // ascending first positions: none sees across a border
  std::int64_t length = 0;                // positions from here on neither see nor are seen

  std::int64_t window = 0;                // longformer, bigbird: width of the sliding window
  std::vector<std::int64_t> dilation{1};  // longformer: distance of the window's keys, heads in turn
  std::vector<std::int64_t> globals{};    // longformer, bigbird: what sees all and is seen by all
  std::int64_t random = 0;                // bigbird: random blocks a row of blocks
  std::uint64_t seed = 0;                 // bigbird: of the random blocks
  std::vector<std::int64_t> grid{};       // convolution: size of the grid of keys, [W] or [H, W]
  std::vector<std::int64_t> filter{};     // convolution: [w] or [h, w]
  std::int64_t step = 1;                  // convolution: its stride
  bool transposed = false;                // convolution: queries and keys swapped
  std::string file{};                     // layout: an HDF5 or numpy file
  std::string dataset{};                  // layout: its name in the HDF5 file
};

struct PatternKind {
  const char* kind;
  const char* summary;  // one line for --help and error texts
  // The fields that a pattern given like this reads; besides `kind` and what any pattern may have.
  std::function<std::vector<std::string>(const PatternSpec&)> fields;
  std::function<std::unique_ptr<AttentionPattern>(const PatternSpec&, int heads)> make;
};
// For the tables: always these fields.
std::function<std::vector<std::string>(const PatternSpec&)> reads(std::vector<std::string> fields);
// All fields that a pattern given like this reads. Throws Error for an unknown kind.
std::vector<std::string> fields_read(const PatternSpec&);
// The table of patterns; a new one is a file in src/patterns/ and two lines in pattern.cpp.
const std::vector<PatternKind>& patterns();
inline constexpr int kMaxPatternNesting = 4;  // `of` within `of`
// Throws Error that names the wrong field and lists what exists.
std::unique_ptr<AttentionPattern> make_pattern(const PatternSpec&, int heads);
// For orders of slots: the first slot of a tile that is not below `slots`.
inline std::int64_t tile_ceil(std::int64_t slots) { return (slots + kTile - 1) / kTile * kTile; }
// For the makers: throws Error unless 1 <= value <= kMaxPositions.
void check_pattern_field(const char* kind, const char* field, std::int64_t value);
// For the makers: `globals`, ascending; throws Error when one is twice there or no position.
std::vector<std::int64_t> ascending_globals(const char* kind, std::vector<std::int64_t> globals);
std::string list_text(const std::vector<std::int64_t>&);  // "[1, 2]"

// The keys below `keys` in the runs of one query.
std::int64_t keys_in(const std::vector<KeyRun>& runs, std::int64_t keys);
// The number of attended pairs of one head, counted from the runs.
std::int64_t needed_pairs(const AttentionPattern&, int head, Lengths);

}  // namespace weft
