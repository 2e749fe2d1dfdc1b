// SPDX-License-Identifier: MIT
// An order of the pixels of an image for attention within patches.
#pragma once

#include <cstdint>

// Position i is the pixel in row i / width and column i % width. Patches are kPatch x kPatch
// pixels; those at the right and lower edges may be cut.
struct Image {
  int64_t height = 0, width = 0;
};

inline constexpr int64_t kPatch = 8;
inline constexpr int64_t kTileSlots = 64;

// The slot of a position: each has its own, from 0 on. Slots may stay empty. Tile t has the slots
// from t * kTileSlots on, for queries and keys.
int64_t slot(const Image&, int64_t i);
