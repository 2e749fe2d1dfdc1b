// SPDX-License-Identifier: MIT
// `inspect --explain`: from the predicate of a pattern to the mask words that a kernel reads, for
// one query.
#pragma once

#include "train/inspect/tiles.h"

#include <cstdint>
#include <string>

namespace weft {
inline constexpr int64_t kMostExplained = 512;   // positions: each key is shown
void check_explained(Lengths n, int64_t query);  // Error unless they can be explained

// Predicate, runs, slot, tiles and mask words of `query`, step by step, and the keys that the words
// stand for. `tiles` are those of the view.
std::string explain_text(const PatternView&, const HeadTiles& tiles, int64_t query);
}  // namespace weft
