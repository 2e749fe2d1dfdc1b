// SPDX-License-Identifier: MIT
// The sixteen operations of RandAugment (Cubuk et al. 2019, arXiv 1909.13719) on images of 8 bits, in place.
// They are those of Pillow's ImageOps, ImageEnhance and Image.transform (affine, nearest neighbour), pixel
// for pixel (tests/golden/randaugment.h5); places that an operation leaves empty become 128.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

inline constexpr std::uint8_t kFill = 128;

struct RgbImage {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // (height, width, 3)
};

// Channel by channel: least value to 0, greatest to 255; and equally many pixels of each value.
void auto_contrast(RgbImage&);
void equalize(RgbImage&);

void invert(RgbImage&);
void posterize(RgbImage&, int bits);               // the upper `bits` bits stay, 0 to 8
void solarize(RgbImage&, int threshold);           // values from `threshold` on are inverted
void solarize_add(RgbImage&, int addition);        // added to values below 128, at most 255
void adjust_color(RgbImage&, double factor);       // 0: grey, 1: as it is, more: more colourful
void adjust_contrast(RgbImage&, double factor);    // 0: the mean grey
void adjust_brightness(RgbImage&, double factor);  // 0: black
void adjust_sharpness(RgbImage&, double factor);   // 0: smoothed; the border stays

void rotate(RgbImage&, double degrees);  // counter-clockwise about the centre
// Pixel (x, y) becomes that at (x + level * y, y), at (x, y + level * x): pixel centres, y down.
void shear_x(RgbImage&, double level);
void shear_y(RgbImage&, double level);
// Pixel (x, y) becomes that at (x + pixels, y), at (x, y + pixels).
void translate_x(RgbImage&, double pixels);
void translate_y(RgbImage&, double pixels);
// Rows row - half .. row + half - 1, columns likewise, as far as they lie in the image.
void cutout(RgbImage&, std::int64_t row, std::int64_t column, std::int64_t half);

}  // namespace weft
