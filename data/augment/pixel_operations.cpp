// SPDX-License-Identifier: MIT
// Look-up tables, blending with a degenerate image, and one nearest-neighbour sampler.
#include "data/augment/pixel_operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

namespace weft {
namespace {

using Table = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

std::uint8_t clipped(std::int64_t value) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(value, 0, 255));
}

template <class Value>
void map_values(RgbImage& image, const Value& value) {
  Table table;
  for (int v = 0; v < 256; ++v) table[v] = clipped(value(v));
  for (std::uint8_t& p : image.pixels) p = table[p];
}

// Each channel through the table that `table_of` makes from its histogram.
void map_channels(RgbImage& image, const std::function<Table(const Histogram&)>& table_of) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    Histogram counts{};
    for (std::size_t i = channel; i < image.pixels.size(); i += 3) ++counts[image.pixels[i]];
    const Table table = table_of(counts);
    for (std::size_t i = channel; i < image.pixels.size(); i += 3) image.pixels[i] = table[image.pixels[i]];
  }
}

Table same_values() {
  Table table;
  std::iota(table.begin(), table.end(), std::uint8_t{0});
  return table;
}

Table auto_contrast_table(const Histogram& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[low] == 0) ++low;
  while (high > 0 && counts[high] == 0) --high;
  if (high <= low) return same_values();
  const double scale = 255.0 / (high - low), offset = -low * scale;
  Table table;
  for (int v = 0; v < 256; ++v) table[v] = clipped(static_cast<std::int64_t>(v * scale + offset));
  return table;
}

// The table goes up by one for every `step` pixels passed; the greatest value present counts for nothing.
Table equalize_table(const Histogram& counts) {
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](std::int64_t n) { return n > 0; });
  const std::int64_t top = last == counts.rend() ? 0 : *last;
  const std::int64_t step = (std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - top) / 255;
  if (step == 0) return same_values();
  Table table;
  std::int64_t passed = step / 2;
  for (std::size_t v = 0; v < 256; ++v) {
    table[v] = clipped(passed / step);
    passed += counts[v];
  }
  return table;
}

// ITU-R 601 luma in 16 bits of fraction.
int grey(const std::uint8_t* pixel) {
  return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16;
}

// From `degenerate` (factor 0) through `value` (factor 1) and beyond, in f32, cut off to whole numbers.
std::uint8_t blended(int degenerate, int value, float factor) {
  const float result = static_cast<float>(degenerate) + factor * static_cast<float>(value - degenerate);
  return result <= 0 ? 0 : result >= 255 ? 255 : static_cast<std::uint8_t>(result);
}

// Result (x, y) is the pixel at (a x + b y + c, d x + e y + f), with x and y at pixel centres; kFill outside
// of the image.
struct Affine {
  double a, b, c, d, e, f;
};

void transform(RgbImage& image, const Affine& m) {
  const auto fixed = [](double v) { return static_cast<std::int64_t>(std::floor(v * 65536 + 0.5)); };
  const std::int64_t a = fixed(m.a), b = fixed(m.b), c = fixed(m.c + m.a * 0.5 + m.b * 0.5), d = fixed(m.d),
                     e = fixed(m.e), f = fixed(m.f + m.d * 0.5 + m.e * 0.5);  // 16 bits of fraction
  const std::vector<std::uint8_t> from = image.pixels;
  std::uint8_t* out = image.pixels.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x, out += 3) {
      const std::int64_t row = (d * x + e * y + f) >> 16, column = (a * x + b * y + c) >> 16;
      if (row >= 0 && row < image.height && column >= 0 && column < image.width)
        std::copy_n(from.data() + (row * image.width + column) * 3, 3, out);
      else
        std::fill_n(out, 3, kFill);
    }
  }
}

// The mean of 13 parts: 5 of the pixel, 1 of each neighbour.
int smooth(const std::vector<std::uint8_t>& pixels, std::int64_t at, std::int64_t row_step) {
  int sum = 4 * pixels[at];
  for (const std::int64_t row : {-row_step, std::int64_t{0}, row_step}) {
    for (const std::int64_t column : {-3, 0, 3}) sum += pixels[at + row + column];
  }
  return (2 * sum + 13) / 26;
}

}  // namespace

void auto_contrast(RgbImage& image) { map_channels(image, auto_contrast_table); }

void equalize(RgbImage& image) { map_channels(image, equalize_table); }

void invert(RgbImage& image) {
  map_values(image, [](int v) { return 255 - v; });
}

void posterize(RgbImage& image, int bits) {
  const int kept = 256 - (1 << (8 - bits));
  map_values(image, [&](int v) { return v & kept; });
}

void solarize(RgbImage& image, int threshold) {
  map_values(image, [&](int v) { return v < threshold ? v : 255 - v; });
}

void solarize_add(RgbImage& image, int addition) {
  map_values(image, [&](int v) { return v < 128 ? v + addition : v; });
}

void adjust_color(RgbImage& image, double factor) {
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const int luma = grey(&image.pixels[i]);
    for (std::size_t c = i; c < i + 3; ++c)
      image.pixels[c] = blended(luma, image.pixels[c], static_cast<float>(factor));
  }
}

void adjust_contrast(RgbImage& image, double factor) {
  if (image.pixels.empty()) return;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += grey(&image.pixels[i]);
  const double mean = static_cast<double>(sum) / static_cast<double>(image.height * image.width);
  const int middle = static_cast<int>(mean + 0.5);
  map_values(image, [&](int v) { return blended(middle, v, static_cast<float>(factor)); });
}

void adjust_brightness(RgbImage& image, double factor) {
  map_values(image, [&](int v) { return blended(0, v, static_cast<float>(factor)); });
}

void adjust_sharpness(RgbImage& image, double factor) {
  const std::vector<std::uint8_t> from = image.pixels;
  for (std::int64_t y = 1; y + 1 < image.height; ++y) {
    for (std::int64_t i = (y * image.width + 1) * 3; i < ((y + 1) * image.width - 1) * 3; ++i) {
      const int smoothed = smooth(from, i, image.width * 3), value = from[i];
      image.pixels[i] = blended(smoothed, value, static_cast<float>(factor));
    }
  }
}

void rotate(RgbImage& image, double degrees) {
  const double angle = -degrees * std::numbers::pi / 180, cos = std::cos(angle), sin = std::sin(angle);
  const double x = static_cast<double>(image.width) / 2, y = static_cast<double>(image.height) / 2;
  transform(image, {cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y});
}

void shear_x(RgbImage& image, double level) { transform(image, {1, level, 0, 0, 1, 0}); }

void shear_y(RgbImage& image, double level) { transform(image, {1, 0, 0, level, 1, 0}); }

void translate_x(RgbImage& image, double pixels) {
  transform(image, {1, 0, std::floor(pixels + 0.5), 0, 1, 0});
}

void translate_y(RgbImage& image, double pixels) {
  transform(image, {1, 0, 0, 0, 1, std::floor(pixels + 0.5)});
}

void cutout(RgbImage& image, std::int64_t row, std::int64_t column, std::int64_t half) {
  const std::int64_t left = std::max<std::int64_t>(0, column - half),
                     right = std::min(image.width, column + half);
  for (std::int64_t y = std::max<std::int64_t>(0, row - half); y < std::min(image.height, row + half); ++y) {
    if (left >= right) return;
    std::fill(image.pixels.begin() + (y * image.width + left) * 3,
              image.pixels.begin() + (y * image.width + right) * 3, kFill);
  }
}

}  // namespace weft
