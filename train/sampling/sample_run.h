// SPDX-License-Identifier: MIT
// The work of the program `sample`.
#pragma once

#include "data/dataset.h"
#include "train/inspect/picture.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sampler.h"

#include <span>
#include <string>
#include <vector>

namespace weft {
struct SampleArguments {
  std::string checkpoint, prompt, prompt_file, out, device = "auto";  // out: text, .png or .wav
  std::string weights;  // "ema", "last"; "": ema where it was kept
  SampleOptions options;
  int64_t batch = 0;  // 0: as many as have room, or images of about 800,000 tokens
  bool stats = false, json = false, tokens = false;
  std::string stop;          // texts end before it
  bool interactive = false;  // a person types what a text goes on with
  // Images.
  std::string singles, augmentation;  // a folder; "rotation=1"
  int64_t label = -1;                 // the class with data.labels; -1: not given
  bool upright = false;               // augmented images are shown as they were before
  std::vector<std::string> complete;  // PNG files, or one data file
  std::string split = "test";         // of the data file
  int64_t first = 0, images = 4;      // of that split
  int64_t rows = -1;                  // given of each; -1: half
  int64_t rate = 12000;               // of a WAV file
};

// Text to `text` or the file --out, images and sound to files (of rank 0), the rest to `notes`.
// Collective.
void run_sample(SampleArguments, Processes&, std::ostream& text, Progress& notes);

// ---- images drawn by a model, or completed by it from their upper rows ----

// Whether this is a model of images whose tokens are brightnesses.
bool draws_images(const Config&);

// Writes the grid and the single images that `arguments` name.
void sample_images(const SampleArguments&, LoadedModel&, Progress&);

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
