// SPDX-License-Identifier: MIT
// RandAugment (Cubuk et al. 2019, arXiv 1909.13719): N operations of sixteen, drawn uniformly with
// replacement, all of one magnitude M from 0 to 10. They are those of Pillow's ImageOps, ImageEnhance and
// Image.transform (affine, nearest neighbour), pixel for pixel (tests/golden/randaugment.h5); places that an
// operation leaves empty become 128.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {
struct RgbImage {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;  // (height, width, 3), 8 bits each
};

enum class RandKind : uint8_t {
  auto_contrast,  // channel by channel: least value to 0, greatest to 255
  equalize,       // channel by channel: equally many pixels of each value
  invert,
  rotate,      // counter-clockwise about the centre, in degrees
  posterize,   // so many upper bits stay, 0 to 8
  solarize,    // values from this one on are inverted
  color,       // 0: grey, 1: as it is, more: more colourful
  contrast,    // 0: the mean grey
  brightness,  // 0: black
  sharpness,   // 0: smoothed; the border stays
  shear_x,     // pixel (x, y) becomes that at (x + argument * y, y): pixel centres, y down
  shear_y,
  translate_x,  // pixel (x, y) becomes that at (x + argument, y)
  translate_y,
  cutout,       // of `argument` rows and columns on each side of the middle, as far as the image goes
  solarize_add  // added to values below 128, at most 255
};
inline constexpr int kRandKinds = 16;
const char* name_of(RandKind);

struct RandOperation {
  RandKind kind = RandKind::auto_contrast;
  double argument = 0;          // what the operation takes; without meaning for the first three
  int64_t row = 0, column = 0;  // cutout: the middle
};

// The argument of an operation at this magnitude, before a sign is drawn.
double argument_of(RandKind, double magnitude);
// The operations that `key` stands for, in the order in which they are applied.
std::vector<RandOperation> draw_operations(uint64_t key, int64_t count, double magnitude, int64_t height,
                                           int64_t width);
void apply(const RandOperation&, RgbImage&);  // in place
}  // namespace weft
