// SPDX-License-Identifier: MIT
// `inspect --tiles` as text.
#pragma once

#include "train/inspect/tiles.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {
// For each pass the counts, the order of the slots, the matrix of tiles, and, where they fit, the
// pairs of all tiles. Lines have at most 100 columns, and there are few of them for any length.
std::string tiles_text(const PatternView&, const HeadTiles&);

// Counts of a pass, of tiles and of pairs, and how they follow from each other: a line each.
std::vector<std::string> count_lines(const TileTables&);

// The positions in slots, in their order: "24-31, 56-63, 8 slots empty".
std::string slots_text(std::span<const int32_t> slots);

// Words in lines that begin with `indent`, of a width that leaves room for "layer 0, ".
std::string wrapped(const std::string& text, const std::string& indent);

// Numbers to be read downwards, one for each column; -1: nothing. Each line begins with `indent`.
std::string numbers_downwards(std::span<const int32_t> numbers, const std::string& indent);
}  // namespace weft
