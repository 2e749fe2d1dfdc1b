// SPDX-License-Identifier: MIT
// Images drawn by a model, or completed by it from their upper rows.
#pragma once

#include "data/dataset.h"
#include "train/inspect/picture.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sample_run.h"

namespace weft {

// Whether this is a model of images whose tokens are brightnesses.
bool draws_images(const Config&);

// Writes the grid and the single images that `arguments` name.
void sample_images(const SampleArguments&, LoadedModel&, Progress&);

// tokens (H, W, C) from 0 to 255, C 1 (grey) or 3; below 0: unknown, drawn in middle grey. Error for others.
Image image_of(const ImageShape&, std::span<const std::int32_t> tokens);

// Where cell `index` of a grid lies, counted row by row. Small images are enlarged `zoom` times.
struct GridLayout {
  std::int64_t columns, rows, zoom, width, height;  // width and height of a cell

  GridLayout(const ImageShape&, std::int64_t cells, std::int64_t in_row);
  std::int64_t x(std::int64_t index) const { return kGap + index % columns * (width + kGap); }
  std::int64_t y(std::int64_t index) const { return kGap + index / columns * (height + kGap); }
  static constexpr std::int64_t kGap = 2;
};
Image draw_grid(const std::vector<Image>& cells, const GridLayout&);

}  // namespace weft
