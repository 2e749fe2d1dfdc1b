// SPDX-License-Identifier: MIT
// Means by position, and their picture.
#include "train/evaluation/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/view.h"
#include "train/program/progress.h"

namespace weft {
namespace {

constexpr std::int64_t kPanel = 384;  // pixels: the longest side of a panel
constexpr std::int64_t kMargin = 12, kBar = 14;
constexpr Rgb kPaper{250, 250, 250}, kNothing{215, 215, 215};

// From dark to bright, so that it survives printing in grey.
Rgb heat(double t) {
  static constexpr std::array<Rgb, 5> kHeat{
      {{13, 8, 42}, {94, 24, 110}, {188, 55, 84}, {245, 135, 20}, {250, 240, 160}}};
  const double place = std::clamp(t, 0.0, 1.0) * (kHeat.size() - 1);
  const auto low = std::min<std::size_t>(static_cast<std::size_t>(place), kHeat.size() - 2);
  return mix(kHeat[low], kHeat[low + 1], place - static_cast<double>(low));
}

}  // namespace

HeatMap::HeatMap(const ImageShape& shape)
    : shape_(shape),
      zoom_(std::max<std::int64_t>(1, kPanel / std::max(shape.height, shape.width))),
      sum_(static_cast<std::size_t>(shape.tokens()), 0),
      count_(sum_.size(), 0) {}

void HeatMap::add(std::int64_t position, double bits) {
  sum_.at(static_cast<std::size_t>(position)) += bits;
  ++count_[static_cast<std::size_t>(position)];
}

double HeatMap::mean(std::int64_t position) const {
  const auto p = static_cast<std::size_t>(position);
  return count_.at(p) == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sum_[p] / static_cast<double>(count_[p]);
}

double HeatMap::pixel(std::int64_t row, std::int64_t column) const {
  return value(row * shape_.width + column, -1);
}

double HeatMap::value(std::int64_t pixel, std::int64_t channel) const {
  if (channel >= 0) return mean(pixel * shape_.channels + channel);
  double all = 0;
  for (std::int64_t c = 0; c < shape_.channels; ++c) all += mean(pixel * shape_.channels + c);
  return all;
}

HeatMap::Scale HeatMap::scale(std::int64_t first_channel, std::int64_t end_channel) const {
  const double infinity = std::numeric_limits<double>::infinity();
  Scale s{infinity, -infinity, 0, 0};
  for (std::int64_t pixel = 0; pixel < shape_.height * shape_.width; ++pixel)
    for (std::int64_t c = first_channel; c < end_channel; ++c) {
      const double v = value(pixel, c);
      if (v < s.least) s.least = v, s.least_at = pixel;
      if (v > s.most) s.most = v, s.most_at = pixel;
    }
  return s;
}

void HeatMap::draw_panel(Image& image, std::int64_t x, std::int64_t channel, const Scale& s) const {
  for (std::int64_t row = 0; row < shape_.height; ++row)
    for (std::int64_t column = 0; column < shape_.width; ++column) {
      const double v = value(row * shape_.width + column, channel);
      const Rgb colour =
          std::isnan(v) ? kNothing : heat(s.most > s.least ? (v - s.least) / (s.most - s.least) : 0);
      fill(image, x + column * zoom_, kMargin + row * zoom_, zoom_, zoom_, colour);
    }
}

void HeatMap::draw_bar(Image& image, std::int64_t x) const {
  const std::int64_t height = shape_.height * zoom_;
  for (std::int64_t y = 0; y < height; ++y)
    fill(image, x, kMargin + y, kBar, 1,
         heat(1 - (static_cast<double>(y) + 0.5) / static_cast<double>(height)));
}

Image HeatMap::image() const {
  const std::int64_t panel = shape_.width * zoom_ + kMargin, bar = kBar + kMargin;
  const std::int64_t channels = shape_.channels > 1 ? shape_.channels : 0;
  Image image(kMargin + panel + bar + (channels > 0 ? channels * panel + bar : 0),
              shape_.height * zoom_ + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kPaper);
  std::int64_t x = kMargin;
  draw_panel(image, x, -1, scale(-1, 0));
  draw_bar(image, x += panel);
  x += bar;
  for (std::int64_t c = 0; c < channels; ++c, x += panel) draw_panel(image, x, c, scale(0, channels));
  if (channels > 0) draw_bar(image, x);
  return image;
}

std::string HeatMap::scale_text(const char* what, const Scale& s) const {
  const auto place = [&](std::int64_t at) {
    return str("(row ", at / shape_.width, ", column ", at % shape_.width, ")");
  };
  return str(what, ": ", fixed_text(s.least, 4), " dark ", place(s.least_at), " to ", fixed_text(s.most, 4),
             " bright ", place(s.most_at));
}

std::string HeatMap::text() const {
  if (shape_.channels == 1) return scale_text("bits of a position", scale(-1, 0));
  return scale_text("bits of a pixel", scale(-1, 0)) + "\n" +
         scale_text("bits of a channel", scale(0, shape_.channels));
}

}  // namespace weft
