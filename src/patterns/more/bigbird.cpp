// SPDX-License-Identifier: MIT
// bigbird: window, global and random blocks (Zaheer et al. 2020, arXiv 2007.14062, section 2 and
// appendix D). In blocks of b = `block` positions, with I = floor(i / b), J = floor(j / b), G =
// `globals`, w = `window`:
//   S_i = {j : I in G or J in G or J in window(I) or J in random(head, I)}, when causal and j <= i
//   window(I): causal the last w blocks, the own one included; else |I - J| <= w / 2 (rounded down)
//   random(head, I): `random` different blocks, or as many as there are, drawn under `seed` from
//   those that I does not see otherwise: causal from the earlier ones, else from all blocks of
//   `length` positions.
// Positions keep their order: tiles lie on the blocks.
#include "kernels/philox.h"
#include "src/patterns/combine.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
using Blocks = std::vector<int64_t>;

constexpr int64_t kMostRandom = 4096;

class BigBird : public AttentionPattern {
 public:
  BigBird(const PatternSpec& spec, Blocks globals)
      : block_(spec.block),
        window_(spec.window),
        random_(spec.random),
        seed_(spec.seed),
        length_(spec.causal ? kMaxPositions : spec.length),
        causal_(spec.causal),
        globals_(std::move(globals)) {}

  std::string name() const override {
    return str("bigbird(block ", block_, ", window ", window_, ", globals ", list_text(globals_),
               ", random ", random_, ", seed ", seed_,
               causal_ ? "" : str(", bidirectional, length ", length_), ")");
  }

  bool causal() const override { return causal_; }

  int groups(int heads) const override { return random_ == 0 ? 1 : heads; }

  int group(int head) const override { return random_ == 0 ? 0 : head; }

  bool attends(int head, int64_t i, int64_t j) const override {
    if (causal_ ? j > i : std::max(i, j) >= length_) return false;
    const int64_t query = i / block_, key = j / block_;
    if (is_global(query) || sees_always(query, key)) return true;
    const Blocks drawn = random_blocks(head, query);
    return std::ranges::find(drawn, key) != drawn.end();
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    if (i >= length_) return;
    const int64_t query = i / block_, end = causal_ ? i + 1 : length_;
    if (is_global(query)) {
      runs.push_back({0, end});
      return;
    }
    const int64_t first = first_of_window(query), behind = end_of_window(query);
    Blocks others = random_blocks(head, query);
    for (const int64_t key : globals_)
      if (key < first || key >= behind) others.push_back(key);
    std::ranges::sort(others);
    const auto add = [&, mine = runs.size()](int64_t block, int64_t end_block) {
      if (block * block_ < end)
        append_run(block * block_, std::min(end_block * block_, end), mine, runs);
    };
    auto other = others.begin();
    for (; other != others.end() && *other < first; ++other) add(*other, *other + 1);
    add(first, behind);
    for (; other != others.end(); ++other) add(*other, *other + 1);
  }

 private:
  int64_t blocks() const { return (length_ - 1) / block_ + 1; }

  int64_t first_of_window(int64_t query) const {
    return std::max<int64_t>(0, query - (causal_ ? window_ - 1 : window_ / 2));
  }

  int64_t end_of_window(int64_t query) const {
    return std::min(query + (causal_ ? 0 : window_ / 2) + 1, blocks());
  }

  bool is_global(int64_t block) const { return std::ranges::binary_search(globals_, block); }

  bool sees_always(int64_t query, int64_t key) const {
    return (key >= first_of_window(query) && key < end_of_window(query)) || is_global(key);
  }

  // Floyd's draw without replacement: number k comes from 0 .. t = left - count + k; t replaces a
  // known one.
  Blocks random_blocks(int head, int64_t query) const {
    if (random_ == 0) return {};
    // Blocks that the query does not see otherwise: before the window, then behind it, without
    // global ones.
    const int64_t first = first_of_window(query), behind = end_of_window(query);
    const int64_t before = first - globals_below(first),
                  after = causal_ ? 0
                                  : blocks() - behind -
                                        (globals_below(blocks()) - globals_below(behind));
    const int64_t left = before + after, count = std::min(random_, left);
    Blocks drawn;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t t = left - count + k, u = uniform(head, query, k, t + 1);
      drawn.push_back(std::ranges::find(drawn, u) == drawn.end() ? u : t);
    }
    for (int64_t& number : drawn)
      number = number < before ? not_global(number, 0) : not_global(number - before, behind);
    return drawn;
  }

  // The k-th draw of this query block and head from 0 .. count - 1: the same on every machine.
  int64_t uniform(int head, int64_t query, int64_t k, int64_t count) const {
    const Philox4 bits = philox4x32(
        {static_cast<uint32_t>(query), static_cast<uint32_t>(head), static_cast<uint32_t>(k), 0},
        seed_);
    const auto wide = static_cast<uint64_t>(count);  // below 2^31
    const uint64_t low = bits[0] * wide, high = bits[1] * wide + (low >> 32);
    return static_cast<int64_t>(high >> 32);  // (bits as a 64-bit number) * count / 2^64
  }

  int64_t globals_below(int64_t block) const {
    return std::ranges::lower_bound(globals_, block) - globals_.begin();
  }

  // The `rank`-th block from `first` on that is not global.
  int64_t not_global(int64_t rank, int64_t first) const {
    int64_t block = first + rank;
    for (auto g = globals_.begin() + globals_below(first); g != globals_.end() && *g <= block; ++g)
      ++block;
    return block;
  }

  int64_t block_, window_, random_;
  uint64_t seed_;
  int64_t length_;  // causal: any
  bool causal_;
  Blocks globals_;
};

std::unique_ptr<AttentionPattern> make_bigbird(const PatternSpec& spec, int) {
  require_pattern_field("bigbird", "block", spec.block);
  require_pattern_field("bigbird", "window", spec.window);
  if (spec.random < 0 || spec.random > kMostRandom)
    refuse_pattern("bigbird", "random must be between 0 and ", kMostRandom, ", got ", spec.random);
  if (!spec.causal && (spec.length < 1 || spec.length > kMaxPositions))
    fail(
        str("attention pattern 'bigbird': with causal: false, length is required, the number of "
            "positions from which random blocks are drawn, 1 to ",
            kMaxPositions, ", got ", spec.length));
  return std::make_unique<BigBird>(spec, ascending_globals("bigbird", spec.globals));
}
}  // namespace

PatternKind bigbird_pattern() {
  return {"bigbird",
          "in blocks of `block` positions: a window of `window` blocks, `globals`, which see all "
          "and are "
          "seen, and `random` others",
          reads({"block", "window", "globals", "random", "seed", "causal"}),
          make_bigbird,
          {"block", "window"}};
}
}  // namespace weft
