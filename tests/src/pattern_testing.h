// SPDX-License-Identifier: MIT
// Random patterns for tests.
#pragma once

#include <random>
#include <string>

#include "src/attention_maps.h"

namespace weft {

struct RandomCase {
  PatternSpec spec;
  std::unique_ptr<AttentionPattern> pattern;
  std::int64_t n = 0;
  int heads = 1, head = 0;
  std::string text() const { return str(pattern->name(), ", head ", head, " of ", heads, ", n ", n); }
};

inline RandomCase random_case(std::mt19937& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  constexpr std::int64_t kLengths[] = {1, 2, 7, 31, 63, 64, 65, 100, 127, 128, 129, 193, 300};
  RandomCase c;
  c.n = kLengths[pick(0, std::size(kLengths) - 1)];
  c.spec.kind = patterns()[pick(0, static_cast<std::int64_t>(patterns().size()) - 1)].kind;
  c.spec.stride = pick(0, 1) ? pick(1, 150) : pick(1, 16);
  c.spec.c = pick(1, pick(1, c.spec.stride));
  c.spec.num_verts = pick(1, c.spec.stride / c.spec.c);
  c.heads = static_cast<int>(c.spec.num_verts * pick(1, 2));
  c.head = static_cast<int>(pick(0, c.heads - 1));
  c.pattern = make_pattern(c.spec, c.heads);
  return c;
}

}  // namespace weft
