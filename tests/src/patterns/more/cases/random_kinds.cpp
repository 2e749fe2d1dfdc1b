// SPDX-License-Identifier: MIT
// Random patterns of the kinds of this part, for selftest and tests.
#include "src/patterns/more/layout.h"
#include "tests/cases/random_case.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>

namespace weft {
namespace {
// A layout of random blocks, half of them with a predicate.
std::unique_ptr<AttentionPattern> random_layout(std::mt19937& random, Lengths n, int heads) {
  BlockLayout layout;
  layout.heads = pick(random, 0, 1) ? heads : 1;
  layout.block = int64_t{8} << pick(random, 0, 3);
  layout.query_blocks = (n.queries - 1) / layout.block + 1;
  layout.key_blocks = (n.keys - 1) / layout.block + 1;
  layout.causal = pick(random, 0, 1) != 0;
  const int64_t share = pick(random, 1, 9);
  layout.active.resize(layout.heads * layout.query_blocks * layout.key_blocks);
  for (uint8_t& block : layout.active) block = pick(random, 0, 9) < share;
  if (pick(random, 0, 1))
    layout.keep = [](int head, int64_t i, int64_t j) { return (i * 7 + j * 3 + head) % 5 < 3; };
  return layout_pattern(layout, heads);
}

// A window and positions or blocks that see all.
void draw_window(std::mt19937& random, int64_t widest, int64_t last_global, PatternSpec& spec) {
  const auto from = [&](int64_t low, int64_t high) { return pick(random, low, high); };
  spec.window = from(1, widest);
  spec.dilation = {from(1, 7)};
  for (int64_t d = from(0, 2); d > 0; --d) spec.dilation.push_back(from(1, 3));
  std::set<int64_t> globals;
  for (int64_t g = from(0, 5); g > 0; --g) globals.insert(from(0, last_global));
  if (from(0, 3) == 0) globals.insert({0, 1, 2, 3});
  spec.globals.assign(globals.begin(), globals.end());
}

void draw_longformer(std::mt19937& random, int64_t n, PatternSpec& spec) {
  draw_window(random, 60, n + 5, spec);
}

void draw_bigbird(std::mt19937& random, int64_t n, PatternSpec& spec) {
  const auto from = [&](int64_t low, int64_t high) { return pick(random, low, high); };
  spec.block = from(0, 1) ? from(1, 20) : int64_t{16} << from(0, 2);
  draw_window(random, 5, n / spec.block, spec);
  spec.random = from(0, 4);
  spec.seed = static_cast<uint64_t>(from(0, 9));
  if (!spec.causal) spec.length = std::max<int64_t>(1, n + from(-3, 20));
}

void draw_convolution(std::mt19937& random, int64_t n, PatternSpec& spec) {
  const auto from = [&](int64_t low, int64_t high) { return pick(random, low, high); };
  const int64_t width = from(1, 40);
  spec.grid = {(n - 1) / width + 1, width};
  spec.filter = {2 * from(0, 6) + 1, 2 * from(0, 6) + 1};
  if (from(0, 3) == 0) spec.grid = {n}, spec.filter = {2 * from(0, 40) + 1};
}

[[maybe_unused]] const bool kAdded = add_random_kind({"layout", nullptr, random_layout}) &&
                                     add_random_kind({"longformer", draw_longformer}) &&
                                     add_random_kind({"bigbird", draw_bigbird}) &&
                                     add_random_kind({"convolution", draw_convolution});
}  // namespace
}  // namespace weft
