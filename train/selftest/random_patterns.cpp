// SPDX-License-Identifier: MIT
#include "train/selftest/random_patterns.h"

#include <algorithm>
#include <set>

#include "src/patterns/pattern.h"

namespace weft {
namespace {

bool is_made_of_others(const std::string& kind) { return kind == "merged" || kind == "heads"; }

PatternSpec random_tree(std::mt19937& random, std::int64_t n, int heads, bool any_direction, int depth) {
  std::vector<std::string> kinds;
  for (const PatternKind& entry : patterns())
    if (entry.kind != std::string("layout") && !entry.content &&
        (depth < 2 || !is_made_of_others(entry.kind)))
      kinds.emplace_back(entry.kind);
  const std::string kind = kinds[pick(random, 0, static_cast<std::int64_t>(kinds.size()) - 1)];
  PatternSpec spec = random_spec(random, kind, n, any_direction);
  while (heads % spec.num_verts != 0) --spec.num_verts;
  if (kind == "fixed" && pick(random, 0, 2) == 0) {
    spec.vertsize = pick(random, 1, 3);
    spec.block = pick(random, 1, 8);
    spec.stride = spec.block * spec.vertsize * (spec.num_verts + pick(random, 0, 3));
  }
  if (is_made_of_others(kind)) {
    const int count =
        static_cast<int>(kind == "merged" ? pick(random, 2, 3) : pick(random, 1, std::min(heads, 3)));
    for (int p = 0; p < count; ++p) {
      const int inner = kind == "merged" ? heads : (heads - p + count - 1) / count;
      spec.of.push_back(random_tree(random, n, inner, any_direction, depth + 1));
    }
  }
  if (pick(random, 0, 5) == 0)
    for (std::int64_t first = pick(random, 0, 20); first < n; first += pick(random, 1, 90))
      spec.documents.push_back(first);
  if (pick(random, 0, 5) == 0 && spec.length == 0) spec.length = pick(random, 1, n + 5);
  if (pick(random, 0, 2) == 0 && !make_pattern(spec, heads)->causal()) spec.prefix = pick(random, 1, n + 5);
  return spec;
}

}  // namespace

std::int64_t pick(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

PatternSpec random_spec(std::mt19937& random, const std::string& kind, std::int64_t n, bool any_direction) {
  const auto from = [&](std::int64_t low, std::int64_t high) { return pick(random, low, high); };
  PatternSpec spec;
  spec.kind = kind;
  spec.stride = from(0, 1) ? from(1, 150) : from(1, 16);
  spec.c = from(1, from(1, spec.stride));
  spec.num_verts = from(1, spec.stride / spec.c);
  spec.causal = !any_direction || from(0, 1);
  const bool bigbird = kind == "bigbird", convolution = kind == "convolution";
  if (bigbird) spec.block = from(0, 1) ? from(1, 20) : std::int64_t{16} << from(0, 2);
  if (bigbird || kind == "longformer") {
    spec.window = from(1, bigbird ? 5 : 60);
    spec.dilation = {from(1, 7)};
    for (std::int64_t d = from(0, 2); d > 0; --d) spec.dilation.push_back(from(1, 3));
    std::set<std::int64_t> globals;
    for (std::int64_t g = from(0, 5); g > 0; --g) globals.insert(from(0, bigbird ? n / spec.block : n + 5));
    if (from(0, 3) == 0) globals.insert({0, 1, 2, 3});
    spec.globals.assign(globals.begin(), globals.end());
  }
  if (bigbird) {
    spec.random = from(0, 4);
    spec.seed = static_cast<std::uint64_t>(from(0, 9));
    if (!spec.causal) spec.length = std::max<std::int64_t>(1, n + from(-3, 20));
  }
  if (convolution) {
    const std::int64_t width = from(1, 40);
    spec.grid = {(n - 1) / width + 1, width};
    spec.filter = {2 * from(0, 6) + 1, 2 * from(0, 6) + 1};
    if (from(0, 3) == 0) spec.grid = {n}, spec.filter = {2 * from(0, 40) + 1};
  }
  return spec;
}

PatternSpec random_pattern(std::mt19937& random, std::int64_t n, int heads, bool any_direction) {
  for (;;) {
    try {
      PatternSpec spec = random_tree(random, n, heads, any_direction, 0);
      static_cast<void>(make_pattern(spec, heads));
      return spec;
    } catch (const Error& error) {  // unions of unions may have too many parts
      if (std::string(error.what()).find("a union of at most") == std::string::npos) throw;
    }
  }
}

}  // namespace weft
