// SPDX-License-Identifier: MIT
#include "train/evaluation/heat_map.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/view.h"
#include "train/program/progress.h"

namespace weft {
namespace {

constexpr std::int64_t kPanel = 384;  // pixels: the longest side of a panel
constexpr std::int64_t kMargin = 12, kBar = 14;
constexpr Rgb kPaper{250, 250, 250}, kNothing{215, 215, 215};

// From dark (t 0) to bright (1), so that it survives printing in grey.
Rgb heat(double t) {
  static constexpr std::array<Rgb, 5> kHeat{
      {{13, 8, 42}, {94, 24, 110}, {188, 55, 84}, {245, 135, 20}, {250, 240, 160}}};
  const double place = t * (kHeat.size() - 1);
  const auto low = std::min<std::size_t>(static_cast<std::size_t>(place), kHeat.size() - 2);
  return mix(kHeat[low], kHeat[low + 1], place - static_cast<double>(low));
}

}  // namespace

HeatMap::HeatMap(const ImageShape& shape)
    : shape_(shape), sum_(static_cast<std::size_t>(shape.tokens()), 0), count_(sum_.size(), 0) {}

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

// What a colour bar stands for.
struct HeatMap::Scale {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  std::int64_t least_at = 0, most_at = 0;  // row * width + column

  Rgb colour(double v) const {
    return std::isnan(v) ? kNothing : heat(most > least ? (v - least) / (most - least) : 0);
  }
  std::string text(const char* what, std::int64_t width) const {
    const auto place = [&](std::int64_t at) {
      return str("(row ", at / width, ", column ", at % width, ")");
    };
    return str(what, ": ", fixed_text(least, 4), " dark ", place(least_at), " to ", fixed_text(most, 4),
               " bright ", place(most_at));
  }
};

HeatMap::Scale HeatMap::scale(std::int64_t first_channel, std::int64_t end_channel) const {
  Scale s;
  for (std::int64_t pixel = 0; pixel < shape_.height * shape_.width; ++pixel)
    for (std::int64_t c = first_channel; c < end_channel; ++c) {
      const double v = value(pixel, c);
      if (v < s.least) s.least = v, s.least_at = pixel;
      if (v > s.most) s.most = v, s.most_at = pixel;
    }
  return s;
}

Image HeatMap::image() const {
  const std::int64_t zoom = std::max<std::int64_t>(1, kPanel / std::max(shape_.height, shape_.width));
  const std::int64_t panel = shape_.width * zoom + kMargin, bar = kBar + kMargin;
  const std::int64_t height = shape_.height * zoom;
  const std::int64_t channels = shape_.channels > 1 ? shape_.channels : 0;
  Image image(kMargin + panel + bar + (channels > 0 ? channels * panel + bar : 0), height + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kPaper);
  std::int64_t x = kMargin;
  const auto draw_panel = [&](std::int64_t channel, const Scale& s) {
    for (std::int64_t pixel = 0; pixel < shape_.height * shape_.width; ++pixel)
      fill(image, x + pixel % shape_.width * zoom, kMargin + pixel / shape_.width * zoom, zoom, zoom,
           s.colour(value(pixel, channel)));
    x += panel;
  };
  const auto draw_bar = [&] {
    for (std::int64_t y = 0; y < height; ++y)
      fill(image, x, kMargin + y, kBar, 1,
           heat(1 - (static_cast<double>(y) + 0.5) / static_cast<double>(height)));
    x += bar;
  };
  draw_panel(-1, scale(-1, 0));
  draw_bar();
  for (std::int64_t c = 0; c < channels; ++c) draw_panel(c, scale(0, channels));
  if (channels > 0) draw_bar();
  return image;
}

std::string HeatMap::text() const {
  if (shape_.channels == 1) return scale(-1, 0).text("bits of a position", shape_.width);
  return scale(-1, 0).text("bits of a pixel", shape_.width) + "\n" +
         scale(0, shape_.channels).text("bits of a channel", shape_.width);
}

}  // namespace weft
