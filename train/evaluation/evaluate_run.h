// SPDX-License-Identifier: MIT
// The work of the program `evaluate`.
#pragma once

#include "data/dataset.h"
#include "src/processes.h"
#include "train/inspect/picture.h"
#include "train/program/progress.h"

#include <string>
#include <vector>

namespace weft {
struct EvaluateArguments {
  // data "": the file named in the checkpoint
  std::string checkpoint, data, split = "test", device = "auto";
  int64_t min_context = 0;
  int64_t batch = 0;            // 0: that of training
  std::string weights;          // "ema", "last"; "": ema where it was kept
  bool decode = false;          // as texts are sampled: a position at a time
  std::string augmentations;    // "all", or one combination: "rotation=1,color=2"
  std::string heatmap, losses;  // files to write
};

// A JSON line for each evaluation to `out`, a sentence to `progress`. Collective; rank 0 writes the
// files.
void run_evaluate(const EvaluateArguments&, Processes&, std::ostream& out, Progress& progress);

// Where a model finds it hard: mean bits by position, as a picture.
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
}  // namespace weft
