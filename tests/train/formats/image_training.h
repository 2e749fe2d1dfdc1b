// SPDX-License-Identifier: MIT
// Small runs on images: a file of them, a config, and what a pixel is.
#pragma once

#include "data/formats/image_set.h"
#include "tests/train/training.h"

#include <string>
#include <vector>

namespace weft {
inline constexpr ImageShape kTinyImage{4, 4, 3};

// Images with a bright upper part and a dark lower one, darker from left to right, each of its own
// brightness: rows and columns are easy to learn and to tell from each other. 24, `valid` and 5
// images in the splits. The class of an image is its brightness, 0 to 3.
void write_tiny_images(const std::string& path, int64_t valid = 7, ImageShape = kTinyImage,
                       bool labels = true);

// Two layers (strided, local) over 48 positions, batch 4, f32, with a moving average; reads
// <folder>/images.h5.
RunConfig tiny_image_config(const std::string& folder,
                            const std::vector<std::string>& overrides = {});
}  // namespace weft
