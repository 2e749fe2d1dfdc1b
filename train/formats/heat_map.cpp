// SPDX-License-Identifier: MIT
#include "train/formats/heat_map.h"

#include "kernels/view.h"
#include "src/config/config.h"
#include "src/files/files.h"
#include "train/program/counts.h"
#include "train/program/options.h"
#include "train/program/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kPanel = 384;  // pixels: the longest side of a panel
constexpr int64_t kMargin = 12, kBar = 14;
constexpr Rgb kPaper{250, 250, 250}, kNothing{215, 215, 215};

// From dark (t 0) to bright (1), so that it survives printing in grey.
Rgb heat(double t) {
  static constexpr std::array<Rgb, 5> kHeat{
      {{13, 8, 42}, {94, 24, 110}, {188, 55, 84}, {245, 135, 20}, {250, 240, 160}}};
  const double place = t * (kHeat.size() - 1);
  const auto low = std::min<std::size_t>(place, kHeat.size() - 2);
  return mix(kHeat[low], kHeat[low + 1], place - static_cast<double>(low));
}

// Images as they are; a text in rows of its innermost axis.
ImageShape map_shape(const TokenDataset& data, const ModelConfig& model) {
  if (data.image()) return data.image();
  const int64_t width = std::min(model.context, model.position_axes.back());
  return {(model.context + width - 1) / width, width, 1};
}
}  // namespace

HeatMap::HeatMap(const ImageShape& shape)
    : shape_(shape),
      sum_(shape.tokens(), 0),
      count_(sum_.size(), 0) {}

void HeatMap::add(int64_t position, double bits) {
  sum_.at(position) += bits;
  ++count_[position];
}

double HeatMap::mean(int64_t position) const {
  const auto p = static_cast<std::size_t>(position);
  return count_.at(p) == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sum_[p] / static_cast<double>(count_[p]);
}

double HeatMap::pixel(int64_t row, int64_t column) const {
  return value(row * shape_.width + column, -1);
}

double HeatMap::value(int64_t pixel, int64_t channel) const {
  if (channel >= 0) return mean(pixel * shape_.channels + channel);
  double all = 0;
  for (int64_t c = 0; c < shape_.channels; ++c) all += mean(pixel * shape_.channels + c);
  return all;
}

// What a colour bar stands for.
struct HeatMap::Scale {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  int64_t least_at = 0, most_at = 0;  // row * width + column

  Rgb colour(double v) const {
    return std::isnan(v) ? kNothing : heat(most > least ? (v - least) / (most - least) : 0);
  }

  std::string text(const char* what, int64_t width) const {
    const auto place = [&](int64_t at) {
      return str("(row ", at / width, ", column ", at % width, ")");
    };
    return str(what, ": ", fixed_text(least, 4), " dark ", place(least_at), " to ",
               fixed_text(most, 4), " bright ", place(most_at));
  }
};

HeatMap::Scale HeatMap::scale(int64_t first_channel, int64_t end_channel) const {
  Scale s;
  for (int64_t pixel = 0; pixel < shape_.height * shape_.width; ++pixel)
    for (int64_t c = first_channel; c < end_channel; ++c) {
      const double v = value(pixel, c);
      if (v < s.least) s.least = v, s.least_at = pixel;
      if (v > s.most) s.most = v, s.most_at = pixel;
    }
  return s;
}

Image HeatMap::image() const {
  const int64_t zoom = std::max<int64_t>(1, kPanel / std::max(shape_.height, shape_.width));
  const int64_t panel = shape_.width * zoom + kMargin, bar = kBar + kMargin;
  const int64_t height = shape_.height * zoom;
  const int64_t channels = shape_.channels > 1 ? shape_.channels : 0;
  Image image(kMargin + panel + bar + (channels > 0 ? channels * panel + bar : 0),
              height + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kPaper);
  int64_t x = kMargin;
  const auto draw_panel = [&](int64_t channel, const Scale& s) {
    for (int64_t pixel = 0; pixel < shape_.height * shape_.width; ++pixel)
      fill(image, x + pixel % shape_.width * zoom, kMargin + pixel / shape_.width * zoom, zoom,
           zoom, s.colour(value(pixel, channel)));
    x += panel;
  };
  const auto draw_bar = [&] {
    for (int64_t y = 0; y < height; ++y)
      fill(image, x, kMargin + y, kBar, 1,
           heat(1 - (static_cast<double>(y) + 0.5) / static_cast<double>(height)));
    x += bar;
  };
  draw_panel(-1, scale(-1, 0));
  draw_bar();
  for (int64_t c = 0; c < channels; ++c) draw_panel(c, scale(0, channels));
  if (channels > 0) draw_bar();
  return image;
}

std::string HeatMap::text() const {
  if (shape_.channels == 1) return scale(-1, 0).text("bits of a position", shape_.width);
  return scale(-1, 0).text("bits of a pixel", shape_.width) + "\n" +
         scale(0, shape_.channels).text("bits of a channel", shape_.width);
}

void HeatMapExtension::add_options(CLI::App& app) {
  add_output(app, "--heatmap", path,
             "PNG to write: mean bits by position; its scale goes to stderr", Devices::written);
}

std::vector<OutputOption> HeatMapExtension::outputs() const { return {{"--heatmap", path}}; }

OnLosses HeatMapExtension::listener(const Config& config, const TokenDataset& data, int64_t count) {
  if (path.empty()) return {};
  if (count > 1)
    fail("--heatmap draws one evaluation: name one combination instead of --augmentations all");
  map_.emplace(map_shape(data, config.model));
  return [this](const EvalWindow& window, auto, std::span<const double> nats) {
    for (int64_t t = window.scored; t < window.length; ++t)
      map_->add(t, nats[static_cast<std::size_t>(t)] / std::numbers::ln2);
  };
}

void HeatMapExtension::finish(Progress& progress) {
  if (!map_) return;
  write_png(path, map_->image());
  progress.line(str(path, ": ", map_->text()));
}
}  // namespace weft
