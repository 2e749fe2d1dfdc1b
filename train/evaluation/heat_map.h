// SPDX-License-Identifier: MIT
// Where a model finds it hard: mean bits by position, as a picture.
#pragma once

#include "data/dataset.h"
#include "train/inspect/picture.h"

namespace weft {

class HeatMap {
 public:
  // Positions run over rows, columns and channels; a text has one channel and rows of its stride.
  explicit HeatMap(const ImageShape& shape);
  void add(std::int64_t position, double bits);
  double mean(std::int64_t position) const;  // NaN where nothing was added
  // The sum over the channels of a pixel.
  double pixel(std::int64_t row, std::int64_t column) const;
  // A panel for the sum over channels with its colour bar, from dark (least) to bright, then one for each
  // channel with theirs. A text has the first alone.
  Image image() const;
  // What the bars stand for, a line each.
  std::string text() const;

 private:
  struct Scale;
  Scale scale(std::int64_t first_channel, std::int64_t end_channel) const;
  double value(std::int64_t pixel, std::int64_t channel) const;  // channel -1: the sum

  ImageShape shape_;
  std::vector<double> sum_;
  std::vector<std::int64_t> count_;
};

}  // namespace weft
