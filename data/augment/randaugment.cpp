// SPDX-License-Identifier: MIT
// From a magnitude to arguments, and from random bits to operations.
#include "data/augment/randaugment.h"

#include <algorithm>

#include "data/augment/transforms.h"
#include "kernels/philox.h"

namespace weft {
const char* name_of(RandKind kind) {
  static constexpr const char* kNames[kRandKinds] = {
      "auto_contrast", "equalize",    "invert",     "rotate",      "posterize", "solarize",
      "color",         "contrast",    "brightness", "sharpness",   "shear_x",   "shear_y",
      "translate_x",   "translate_y", "cutout",     "solarize_add"};
  return kNames[static_cast<int>(kind)];
}

double argument_of(RandKind kind, double magnitude) {
  const double share = magnitude / 10;
  const auto whole = [](double v) { return static_cast<double>(static_cast<std::int64_t>(v)); };
  switch (kind) {
    case RandKind::auto_contrast:
    case RandKind::equalize:
    case RandKind::invert: return 0;
    case RandKind::rotate: return share * 30;
    // One bit is the least: with none every image is black.
    case RandKind::posterize: return std::max(1.0, whole(share * 4));
    case RandKind::solarize: return whole(share * 256);
    case RandKind::solarize_add: return whole(share * 110);
    case RandKind::color:
    case RandKind::contrast:
    case RandKind::brightness:
    case RandKind::sharpness: return share * 1.8 + 0.1;
    case RandKind::shear_x:
    case RandKind::shear_y: return share * 0.3;
    case RandKind::translate_x:
    case RandKind::translate_y: return share * 50;
    case RandKind::cutout: return whole(share * 20);
  }
  return 0;
}

bool is_signed(RandKind kind) {
  return kind == RandKind::rotate || kind == RandKind::shear_x || kind == RandKind::shear_y ||
         kind == RandKind::translate_x || kind == RandKind::translate_y;
}

std::vector<RandOperation> draw_operations(std::uint64_t key, std::int64_t count, double magnitude,
                                           std::int64_t height, std::int64_t width) {
  std::vector<RandOperation> operations;
  for (std::int64_t i = 0; i < count; ++i) {
    const Philox4 bits = philox4x32({static_cast<std::uint32_t>(i)}, key);
    RandOperation o;
    o.kind = static_cast<RandKind>(uniform_below(bits[0], kRandKinds));
    o.argument = argument_of(o.kind, magnitude);
    if (is_signed(o.kind) && uniform_below(bits[1], 2) == 1) o.argument = -o.argument;
    o.row = uniform_below(bits[2], height);
    o.column = uniform_below(bits[3], width);
    operations.push_back(o);
  }
  return operations;
}

void apply(const RandOperation& o, RgbImage& image) {
  const int whole = static_cast<int>(o.argument);
  switch (o.kind) {
    case RandKind::auto_contrast: return auto_contrast(image);
    case RandKind::equalize: return equalize(image);
    case RandKind::invert: return invert(image);
    case RandKind::rotate: return rotate(image, o.argument);
    case RandKind::posterize: return posterize(image, whole);
    case RandKind::solarize: return solarize(image, whole);
    case RandKind::color: return adjust_color(image, o.argument);
    case RandKind::contrast: return adjust_contrast(image, o.argument);
    case RandKind::brightness: return adjust_brightness(image, o.argument);
    case RandKind::sharpness: return adjust_sharpness(image, o.argument);
    case RandKind::shear_x: return shear_x(image, o.argument);
    case RandKind::shear_y: return shear_y(image, o.argument);
    case RandKind::translate_x: return translate_x(image, o.argument);
    case RandKind::translate_y: return translate_y(image, o.argument);
    case RandKind::cutout: return cutout(image, o.row, o.column, whole);
    case RandKind::solarize_add: return solarize_add(image, whole);
  }
}

}  // namespace weft
