// SPDX-License-Identifier: MIT
// Permutations of the sub-pixels of an image, for distribution augmentation (Jun et al. 2020). Token t of the
// result is token order[t] of the image. Tokens run over rows, columns and channels, channels fastest.
#pragma once

#include "data/dataset.h"

namespace weft {

using Order = std::vector<std::int32_t>;

Order identity_order(std::int64_t tokens);
// Clockwise by `quarters` * 90 degrees; an odd number of them wants a square.
Order rotation_order(const ImageShape&, std::int64_t quarters);
// Channel c becomes channel (012, 021, 102, 120, 201, 210)[value][c]; three channels.
Order color_order(const ImageShape&, std::int64_t value);
// Rows become columns; wants a square.
Order transposition_order(const ImageShape&);
Order flip_order(const ImageShape&);  // left to right
// Tile p of grid x grid becomes tile permutation[p], the permutation with number `value` in lexicographic
// order. Wants sides that `grid` divides.
Order jigsaw_order(const ImageShape&, std::int64_t grid, std::int64_t value);
// Fisher-Yates from the last place down: place i is exchanged with place floor((i + 1) * r / 2^32), r the
// first word of the Philox block of counter i.
Order random_order(std::int64_t tokens, std::uint64_t seed);

// `first`, then `second`: (first * second)[t] = first[second[t]].
Order composed(const Order& first, const Order& second);
Order inverse(const Order&);

// Uniform in 0 .. count - 1, each to within 2^-32, from random bits; count up to 2^32.
inline std::int64_t uniform_below(std::uint32_t bits, std::int64_t count) {
  return static_cast<std::int64_t>(std::uint64_t{bits} * static_cast<std::uint64_t>(count) >> 32);
}

}  // namespace weft
