// SPDX-License-Identifier: MIT
// An attention pattern in a config, and the table of the kinds. Headers include this, not
// pattern.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
class AttentionPattern;  // src/patterns/pattern.h

// How many queries and keys there are: equally many in self-attention.
struct Lengths {
  int64_t queries = 0, keys = 0;
  Lengths() = default;

  Lengths(int64_t n)
      : queries(n),
        keys(n) {}  // NOLINT: one length is both

  Lengths(int64_t q, int64_t k)
      : queries(q),
        keys(k) {}

  friend bool operator==(const Lengths&, const Lengths&) = default;
};

// Each kind reads some of the fields (PatternKind::fields); the config reader refuses the other
// keys.
struct PatternSpec {
  std::string kind = "fixed";
  // l: width of the window, distance of the keys, or length of a block
  int64_t stride = 128;
  int64_t c = 32;  // fixed, summary: summary positions at the end of each block
  // fixed, summary: distinct sub-blocks of c positions, heads in turn
  int64_t num_verts = 1;
  int64_t block = 0;     // edge of the blocks of a block-level form; 0: exact positions
  int64_t vertsize = 1;  // fixed, summary with blocks: c = vertsize * block
  bool causal = true;    // false: later keys are seen too
  // merged: patterns of the union; heads: patterns that heads take in turn
  std::vector<PatternSpec> of{};

  // Modifiers, which any kind reads (src/patterns/modified.cpp). 0 or empty: absent.
  int64_t prefix = 0;                // of a pattern that sees later keys: only those below `prefix`
  std::vector<int64_t> documents{};  // ascending first positions: no query sees across a border
  int64_t length = 0;                // positions from here on neither see nor are seen

  // longformer, bigbird: width of the sliding window; routing, lsh: keys seen; required
  int64_t window = 0;
  std::vector<int64_t> dilation{1};  // longformer: distance of the window's keys, heads in turn
  // longformer, bigbird: positions or blocks that see all and are seen
  std::vector<int64_t> globals{};
  int64_t random = 0;             // bigbird: random blocks of each query block
  uint64_t seed = 0;              // bigbird: of the random blocks
  std::vector<int64_t> grid{};    // convolution: size of the grid of keys, [W] or [H, W]
  std::vector<int64_t> filter{};  // convolution: [w] or [h, w]
  int64_t step = 1;               // convolution: its stride
  bool transposed = false;        // convolution: queries and keys swapped
  std::string file{};             // layout: an HDF5 or numpy file
  std::string dataset{};          // layout: its name in the HDF5 file
  int64_t clusters = 0;           // routing: clusters of queries; required
  int64_t rounds = 4;             // lsh: independent hashes
  int64_t buckets = 0;            // lsh: of a hash, at least; 0: context / 64
  int64_t blocks = 0;             // topk_blocks: blocks that a query sees; required
};

inline constexpr int kMaxPatternNesting = 4;  // `of` within `of`

struct PatternKind {
  const char* kind;
  const char* summary;  // one line for --help and error texts
  // The fields that a pattern with this spec reads, without `kind` and the modifiers.
  std::function<std::vector<std::string>(const PatternSpec&)> fields;
  std::function<std::unique_ptr<AttentionPattern>(const PatternSpec&, int heads)> make;
  std::vector<std::string> required{};  // fields without a default that works
  bool dynamic = false;                 // what a query sees depends on more than positions
};

// All kinds. A new one of the core is a file in src/patterns/ and two lines in pattern.cpp; one of
// a part is added by its register_<part>().
const std::vector<PatternKind>& patterns();
void add_pattern(PatternKind);
// All fields that a pattern with this spec reads. Throws Error for an unknown kind.
std::vector<std::string> fields_read(const PatternSpec&);
// Those of them that a config must set.
const std::vector<std::string>& required_fields(const PatternSpec&);
// Throws Error that names the wrong field and lists what exists.
std::unique_ptr<AttentionPattern> make_pattern(const PatternSpec&, int heads);
}  // namespace weft
