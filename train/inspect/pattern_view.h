// SPDX-License-Identifier: MIT
// One head of one pattern, from a config or alone: what most outputs of `inspect` are about.
#pragma once

#include "src/patterns/spec.h"

#include <string>

namespace weft {
struct PatternView {
  const AttentionPattern& pattern;
  const PatternSpec& spec;
  int heads = 1, head = 0;
  Lengths n;
};

// "head 1: local(stride 8), 32 positions"
std::string title_of(const PatternView&);
}  // namespace weft
