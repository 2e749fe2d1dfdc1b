// SPDX-License-Identifier: MIT
// RandAugment (Cubuk et al. 2019, arXiv 1909.13719): N operations of sixteen, drawn uniformly with
// replacement, all of one magnitude M from 0 to 10.
#pragma once

#include "data/augment/pixel_operations.h"

namespace weft {

enum class RandKind : std::uint8_t {
  auto_contrast,
  equalize,
  invert,
  rotate,
  posterize,
  solarize,
  color,
  contrast,
  brightness,
  sharpness,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  cutout,
  solarize_add
};
inline constexpr int kRandKinds = 16;
const char* name_of(RandKind);

struct RandOperation {
  RandKind kind = RandKind::auto_contrast;
  double argument = 0;               // what the operation takes; without meaning for the first three
  std::int64_t row = 0, column = 0;  // cutout: the middle
};

// The argument of an operation at this magnitude, before a sign is drawn.
double argument_of(RandKind, double magnitude);
bool is_signed(RandKind);  // whether its argument gets a random sign
// The operations that `key` stands for, in the order in which they are applied.
std::vector<RandOperation> draw_operations(std::uint64_t key, std::int64_t count, double magnitude,
                                           std::int64_t height, std::int64_t width);
void apply(const RandOperation&, RgbImage&);

}  // namespace weft
