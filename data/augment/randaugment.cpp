// SPDX-License-Identifier: MIT
#include "data/augment/randaugment.h"

#include <algorithm>
#include <cmath>

#include "data/augment/transforms.h"
#include "kernels/philox.h"

namespace weft {
namespace {

// The argument at magnitude M is slope * M / 10 + offset.
struct KindInfo {
  const char* name;
  double slope = 0, offset = 0;
  bool whole = false, is_signed = false;
};
constexpr KindInfo kKinds[kRandKinds] = {{"auto_contrast"},
                                         {"equalize"},
                                         {"invert"},
                                         {"rotate", 30, 0, false, true},
                                         {"posterize", 4, 0, true},
                                         {"solarize", 256, 0, true},
                                         {"color", 1.8, 0.1},
                                         {"contrast", 1.8, 0.1},
                                         {"brightness", 1.8, 0.1},
                                         {"sharpness", 1.8, 0.1},
                                         {"shear_x", 0.3, 0, false, true},
                                         {"shear_y", 0.3, 0, false, true},
                                         {"translate_x", 50, 0, false, true},
                                         {"translate_y", 50, 0, false, true},
                                         {"cutout", 20, 0, true},
                                         {"solarize_add", 110, 0, true}};

const KindInfo& info(RandKind kind) { return kKinds[static_cast<int>(kind)]; }

}  // namespace

const char* name_of(RandKind kind) { return info(kind).name; }

bool is_signed(RandKind kind) { return info(kind).is_signed; }

double argument_of(RandKind kind, double magnitude) {
  const double argument = magnitude / 10 * info(kind).slope + info(kind).offset;
  // With no bit left every image is black.
  if (kind == RandKind::posterize) return std::max(1.0, std::trunc(argument));
  return info(kind).whole ? std::trunc(argument) : argument;
}

std::vector<RandOperation> draw_operations(std::uint64_t key, std::int64_t count, double magnitude,
                                           std::int64_t height, std::int64_t width) {
  std::vector<RandOperation> operations;
  for (std::int64_t i = 0; i < count; ++i) {
    const Philox4 bits = philox4x32({static_cast<std::uint32_t>(i)}, key);
    const auto kind = static_cast<RandKind>(uniform_below(bits[0], kRandKinds));
    const double argument = argument_of(kind, magnitude);
    const bool negative = is_signed(kind) && uniform_below(bits[1], 2) == 1;
    operations.push_back({kind, negative ? -argument : argument, uniform_below(bits[2], height),
                          uniform_below(bits[3], width)});
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
