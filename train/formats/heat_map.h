// SPDX-License-Identifier: MIT
// `evaluate --heatmap`: where a model finds it hard.
#pragma once

#include "data/dataset.h"
#include "train/evaluation/extension.h"
#include "train/program/png.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft {
// Mean bits by position, as a picture.
class HeatMap {
 public:
  // Positions run over rows, columns and channels; a text has one channel and rows of its stride.
  explicit HeatMap(const ImageShape& shape);
  void add(int64_t position, double bits);
  double mean(int64_t position) const;  // NaN where nothing was added
  // The sum over the channels of a pixel.
  double pixel(int64_t row, int64_t column) const;
  // A panel for the sum over channels with its colour bar, dark to bright, then one for each of
  // several.
  Image image() const;
  // What the bars stand for, a line each.
  std::string text() const;

 private:
  struct Scale;
  Scale scale(int64_t first_channel, int64_t end_channel) const;
  double value(int64_t pixel, int64_t channel) const;  // channel -1: the sum

  ImageShape shape_;
  std::vector<double> sum_;
  std::vector<int64_t> count_;
};

// The option, and the map of an evaluation.
class HeatMapExtension : public EvaluateExtension {
 public:
  void add_options(CLI::App&) override;
  std::vector<OutputOption> outputs() const override;
  OnLosses listener(const Config&, const TokenDataset&, int64_t count) override;
  void finish(Progress&) override;

  std::string path;  // of the PNG; "": none is drawn

 private:
  std::optional<HeatMap> map_;
};
}  // namespace weft
