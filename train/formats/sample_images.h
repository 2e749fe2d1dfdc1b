// SPDX-License-Identifier: MIT
// Images drawn by a model, or completed by it from their upper rows.
#pragma once

#include "data/augment/image_items.h"
#include "train/program/png.h"
#include "train/sampling/extension.h"

#include <span>
#include <string>
#include <vector>

namespace weft {
// The options, and what is made of them: the grid and the single images.
class ImageSamples : public SampleExtension {
 public:
  void add_options(CLI::App&) override;

  std::vector<std::string> inputs() const override { return complete; }

  std::vector<OutputOption> outputs(const SampleArguments&) const override;
  bool asked(const SampleArguments&, const Config&) const override;
  void sample(SampleArguments&, LoadedModel&, Progress&) override;
  bool preview(Device&, Model&, const Config&, const std::string& stem,
               const OnPositions&) const override;

  std::string singles, augmentation;  // a folder; "rotation=1"
  int64_t label = -1;                 // the class with data.labels; -1: not given
  bool upright = false;               // augmented images are shown as they were before
  std::vector<std::string> complete;  // PNG files, or one data file
  std::string split = "test";         // of the data file
  int64_t first = 0, images = 4;      // of that split
  int64_t rows = -1;                  // given of each; -1: half
};

// Whether this is a model of images whose tokens are brightnesses.
bool draws_images(const Config&);

// tokens (H, W, C) from 0 to 255, C 1 (grey) or 3; below 0: unknown, drawn in middle grey. Error
// for others.
Image image_of(const ImageShape&, std::span<const int32_t> tokens);

// Where cell `index` of a grid lies, counted row by row. Small images are enlarged `zoom` times.
struct GridLayout {
  int64_t columns, rows, zoom, width, height;  // width and height of a cell

  GridLayout(const ImageShape&, int64_t cells, int64_t in_row);

  int64_t x(int64_t index) const { return kGap + index % columns * (width + kGap); }

  int64_t y(int64_t index) const { return kGap + index / columns * (height + kGap); }

  static constexpr int64_t kGap = 2;
};

Image draw_grid(const std::vector<Image>& cells, const GridLayout&);
}  // namespace weft
