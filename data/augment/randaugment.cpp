// SPDX-License-Identifier: MIT
// Look-up tables, blending with a degenerate image, and one nearest-neighbour sampler.
#include "data/augment/augment.h"
#include "kernels/philox.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numbers>
#include <numeric>
#include <vector>

namespace weft {
namespace {
constexpr uint8_t kFill = 128;  // of places that an operation leaves empty
using Table = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

uint8_t clipped(int64_t value) { return static_cast<uint8_t>(std::clamp<int64_t>(value, 0, 255)); }

template <class Value>
void map_values(RgbImage& image, const Value& value) {
  Table table;
  for (int v = 0; v < 256; ++v) table[v] = clipped(value(v));
  for (uint8_t& p : image.pixels) p = table[p];
}

// Each channel through the table that `table_of` makes from its histogram.
void map_channels(RgbImage& image, const std::function<Table(const Histogram&)>& table_of) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    Histogram counts{};
    for (std::size_t i = channel; i < image.pixels.size(); i += 3) ++counts[image.pixels[i]];
    const Table table = table_of(counts);
    for (std::size_t i = channel; i < image.pixels.size(); i += 3)
      image.pixels[i] = table[image.pixels[i]];
  }
}

Table same_values() {
  Table table;
  std::iota(table.begin(), table.end(), uint8_t{0});
  return table;
}

Table auto_contrast_table(const Histogram& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[low] == 0) ++low;
  while (high > 0 && counts[high] == 0) --high;
  if (high <= low) return same_values();
  const double scale = 255.0 / (high - low), offset = -low * scale;
  Table table;
  for (int v = 0; v < 256; ++v) table[v] = clipped(static_cast<int64_t>(v * scale + offset));
  return table;
}

// The table goes up by one for every `step` pixels passed; the greatest value present counts for
// nothing.
Table equalize_table(const Histogram& counts) {
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](int64_t n) { return n > 0; });
  const int64_t top = last == counts.rend() ? 0 : *last;
  const int64_t step = (std::accumulate(counts.begin(), counts.end(), int64_t{0}) - top) / 255;
  if (step == 0) return same_values();
  Table table;
  int64_t passed = step / 2;
  for (std::size_t v = 0; v < 256; ++v) {
    table[v] = clipped(passed / step);
    passed += counts[v];
  }
  return table;
}

// ITU-R 601 luma in 16 bits of fraction.
int grey(const uint8_t* pixel) {
  return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16;
}

// From `degenerate` (factor 0) through `value` (factor 1) and beyond, in f32, cut off to whole
// numbers.
uint8_t blended(int degenerate, int value, float factor) {
  const float result =
      static_cast<float>(degenerate) + factor * static_cast<float>(value - degenerate);
  return result <= 0 ? 0 : result >= 255 ? 255 : static_cast<uint8_t>(result);
}

// Result (x, y) is the pixel at (a x + b y + c, d x + e y + f), x and y at pixel centres; outside
// kFill.
struct Affine {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

void transform(RgbImage& image, const Affine& m) {
  const auto fixed = [](double v) { return static_cast<int64_t>(std::floor(v * 65536 + 0.5)); };
  const int64_t a = fixed(m.a), b = fixed(m.b), c = fixed(m.c + m.a * 0.5 + m.b * 0.5),
                d = fixed(m.d), e = fixed(m.e),
                f = fixed(m.f + m.d * 0.5 + m.e * 0.5);  // 16 bits of fraction
  const std::vector<uint8_t> from = image.pixels;
  uint8_t* out = image.pixels.data();
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x, out += 3) {
      const int64_t row = (d * x + e * y + f) >> 16, column = (a * x + b * y + c) >> 16;
      if (row >= 0 && row < image.height && column >= 0 && column < image.width)
        std::copy_n(from.data() + (row * image.width + column) * 3, 3, out);
      else
        std::fill_n(out, 3, kFill);
    }
  }
}

// The mean of 13 parts: 5 of the pixel, 1 of each neighbour.
int smooth(const std::vector<uint8_t>& pixels, int64_t at, int64_t row_step) {
  int sum = 4 * pixels[at];
  for (const int64_t row : {-row_step, int64_t{0}, row_step}) {
    for (const int64_t column : {-3, 0, 3}) sum += pixels[at + row + column];
  }
  return (2 * sum + 13) / 26;
}

void adjust_color(RgbImage& image, float factor) {
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const int luma = grey(&image.pixels[i]);
    for (std::size_t c = i; c < i + 3; ++c)
      image.pixels[c] = blended(luma, image.pixels[c], factor);
  }
}

void adjust_contrast(RgbImage& image, float factor) {
  if (image.pixels.empty()) return;
  int64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += grey(&image.pixels[i]);
  const double mean = static_cast<double>(sum) / static_cast<double>(image.height * image.width);
  const int middle = static_cast<int>(mean + 0.5);
  map_values(image, [&](int v) { return blended(middle, v, factor); });
}

void adjust_sharpness(RgbImage& image, float factor) {
  const std::vector<uint8_t> from = image.pixels;
  for (int64_t y = 1; y + 1 < image.height; ++y) {
    for (int64_t i = (y * image.width + 1) * 3; i < ((y + 1) * image.width - 1) * 3; ++i) {
      const int smoothed = smooth(from, i, image.width * 3), value = from[i];
      image.pixels[i] = blended(smoothed, value, factor);
    }
  }
}

void rotate(RgbImage& image, double degrees) {
  const double angle = -degrees * std::numbers::pi / 180, cos = std::cos(angle),
               sin = std::sin(angle);
  const double x = static_cast<double>(image.width) / 2, y = static_cast<double>(image.height) / 2;
  transform(image, {cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y});
}

void cutout(RgbImage& image, int64_t row, int64_t column, int64_t half) {
  const int64_t left = std::max<int64_t>(0, column - half),
                right = std::min(image.width, column + half);
  for (int64_t y = std::max<int64_t>(0, row - half); y < std::min(image.height, row + half); ++y) {
    if (left >= right) return;
    std::fill(image.pixels.begin() + (y * image.width + left) * 3,
              image.pixels.begin() + (y * image.width + right) * 3, kFill);
  }
}

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

double argument_of(RandKind kind, double magnitude) {
  const double argument = magnitude / 10 * info(kind).slope + info(kind).offset;
  // With no bit left every image is black.
  if (kind == RandKind::posterize) return std::max(1.0, std::trunc(argument));
  return info(kind).whole ? std::trunc(argument) : argument;
}

std::vector<RandOperation> draw_operations(uint64_t key, int64_t count, double magnitude,
                                           int64_t height, int64_t width) {
  std::vector<RandOperation> operations;
  for (int64_t i = 0; i < count; ++i) {
    const Philox4 bits = philox4x32({static_cast<uint32_t>(i)}, key);
    const auto kind = static_cast<RandKind>(uniform_below(bits[0], kRandKinds));
    const double argument = argument_of(kind, magnitude);
    const bool negative = info(kind).is_signed && uniform_below(bits[1], 2) == 1;
    operations.push_back({kind, negative ? -argument : argument, uniform_below(bits[2], height),
                          uniform_below(bits[3], width)});
  }
  return operations;
}

void apply(const RandOperation& o, RgbImage& image) {
  const int whole = static_cast<int>(o.argument);
  const auto factor = static_cast<float>(o.argument);
  switch (o.kind) {
    case RandKind::auto_contrast: return map_channels(image, auto_contrast_table);
    case RandKind::equalize: return map_channels(image, equalize_table);
    case RandKind::invert: return map_values(image, [](int v) { return 255 - v; });
    case RandKind::rotate: return rotate(image, o.argument);
    case RandKind::posterize:
      return map_values(image, [&](int v) { return v & (256 - (1 << (8 - whole))); });
    case RandKind::solarize:
      return map_values(image, [&](int v) { return v < whole ? v : 255 - v; });
    case RandKind::color: return adjust_color(image, factor);
    case RandKind::contrast: return adjust_contrast(image, factor);
    case RandKind::brightness:
      return map_values(image, [&](int v) { return blended(0, v, factor); });
    case RandKind::sharpness: return adjust_sharpness(image, factor);
    case RandKind::shear_x: return transform(image, {.b = o.argument});
    case RandKind::shear_y: return transform(image, {.d = o.argument});
    case RandKind::translate_x: return transform(image, {.c = std::floor(o.argument + 0.5)});
    case RandKind::translate_y: return transform(image, {.f = std::floor(o.argument + 0.5)});
    case RandKind::cutout: return cutout(image, o.row, o.column, whole);
    case RandKind::solarize_add:
      return map_values(image, [&](int v) { return v < 128 ? v + whole : v; });
  }
}
}  // namespace weft
