// SPDX-License-Identifier: MIT
// Random cases: lengths around the edges of tiles, head sizes with their extremes, every kind of pattern.
#include "train/selftest/case.h"

#include "src/patterns/pattern.h"
#include "train/selftest/random_patterns.h"

namespace weft {
namespace {

using attention_oracle::kBest;
using std::int64_t;

constexpr int64_t kLengths[] = {1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 80, 100, 127, 128, 129, 193};
constexpr int64_t kHeadSizes[] = {8, 8, 16, 16, 24, 32, 32, 40, 64, 64, 72, 96, 128, 136, 192, 256};
constexpr int64_t kHeads[] = {1, 2, 3, 4, 6};
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
// Pairs of one case times numbers of a head: what the definition takes some hundredths of a second for.
constexpr int64_t kWork = 4'000'000;

// A layout of random blocks, half of them with a predicate.
std::unique_ptr<AttentionPattern> random_layout(std::mt19937& random, Lengths n, int heads) {
  BlockLayout layout;
  layout.heads = pick(random, 0, 1) ? heads : 1;
  layout.block = int64_t{8} << pick(random, 0, 3);
  layout.query_blocks = (n.queries - 1) / layout.block + 1;
  layout.key_blocks = (n.keys - 1) / layout.block + 1;
  layout.causal = pick(random, 0, 1) != 0;
  const int64_t share = pick(random, 1, 9);
  layout.active.resize(static_cast<std::size_t>(layout.heads * layout.query_blocks * layout.key_blocks));
  for (std::uint8_t& block : layout.active) block = pick(random, 0, 9) < share;
  if (pick(random, 0, 1))
    layout.keep = [](int head, int64_t i, int64_t j) { return (i * 7 + j * 3 + head) % 5 < 3; };
  return layout_pattern(layout, heads);
}

template <class T, std::size_t N>
T one_of(std::mt19937& random, const T (&list)[N]) {
  return list[pick(random, 0, static_cast<int64_t>(N) - 1)];
}

}  // namespace

SelftestCase make_selftest_case(std::uint32_t seed, bool cuda) {
  std::mt19937 random(seed);
  SelftestCase c;
  c.seed = seed;
  c.dtype = kTypes[pick(random, 0, cuda ? 2 : 3)];
  attention_oracle::Sizes& s = c.size;
  s.batch = pick(random, 1, 3);
  s.heads = one_of(random, kHeads);
  s.qk = one_of(random, kHeadSizes);
  s.v = pick(random, 0, 1) ? s.qk : one_of(random, kHeadSizes);
  const bool square = pick(random, 0, 3) != 0;
  int64_t keys = 0;
  do {
    s.time = one_of(random, kLengths);
    keys = square ? s.time : one_of(random, kLengths);
  } while (s.batch * s.heads * (s.qk + s.v) * s.time * keys > kWork);
  if (pick(random, 0, 4) == 0) {
    c.kind = "layout";
    c.pattern = random_layout(random, {s.time, keys}, c.heads());
  } else {
    const PatternSpec spec = random_pattern(random, std::max(s.time, keys), c.heads(), true);
    c.kind = spec.kind;
    c.pattern = make_pattern(spec, c.heads());
    const Lengths longest = c.pattern->lengths();
    if (longest.queries) s.time = std::min(s.time, longest.queries);
    if (longest.keys) keys = std::min(keys, longest.keys);
  }
  s.keys = keys == s.time ? 0 : keys;
  c.edge = pick(random, 0, 2) ? kBest : pick(random, 0, 1) ? kTile : kSmallTile;
  c.segments = pick(random, 0, 3) == 0;
  return c;
}

int SelftestCase::first_head(int group) const {
  for (int head = 0; head < heads(); ++head)
    if (pattern->group(head) == group) return head;
  fail("groups: group ", group, " has no head");
}

std::string SelftestCase::text() const {
  return str(pattern->name(), ", ", name_of(dtype), ", batch ", size.batch, ", heads ", size.heads, " of ",
             size.qk, " and ", size.v, ", queries ", lengths().queries, ", keys ", lengths().keys, ", tiles ",
             edge == attention_oracle::kBest ? std::string("as they suit") : std::to_string(edge),
             segments ? ", segments" : "");
}

}  // namespace weft
