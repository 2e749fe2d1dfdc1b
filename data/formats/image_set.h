// SPDX-License-Identifier: MIT
// A data file of images of one shape: written, and the order in which training sees them.
#pragma once

#include "data/dataset.h"

#include <string>
#include <vector>

namespace weft {
struct Config;

// Which of `count` images training sees as number `index`: each once an epoch, ordered by (seed,
// epoch).
int64_t image_at(uint64_t seed, int64_t index, int64_t count);

// The images of one split, as `prepare` writes them.
struct ImageSplit {
  std::vector<uint8_t> pixels;   // (images, height, width, channels)
  std::vector<uint16_t> labels;  // one for each image, or none at all
};

// Images of one shape, vocabulary 256. A split may be empty, train may not. Returns one line for
// people.
std::string write_image_file(const std::string& path, const ImageShape&, const ImageSplit& train,
                             const ImageSplit& valid, const ImageSplit& test,
                             const std::string& description,
                             const std::vector<std::string>& sources = {});

// With data.labels the class of each image of the data; else empty. Throws Error for missing or
// wrong ones.
std::vector<uint16_t> labels_of(const Config&, const TokenDataset&);

// The images that model.position_axes describe. Throws Error unless they have rows, columns and
// channels.
ImageShape image_shape(const Config&);
}  // namespace weft
