// SPDX-License-Identifier: MIT
// Raw image files, as data sets are published: CIFAR-10 records and numpy arrays. Each function
// appends the images of a file to `out`, (rows, columns, channels). Damaged or other bytes: Error,
// naming `where`.
#pragma once

#include "data/formats/image_set.h"

#include <string>
#include <string_view>
#include <vector>

namespace weft {
// Images of three channels, `side` rows and columns.
ImageShape square_rgb(int64_t side);

// Records of a label, 0 to 9, and the red, green and blue plane of 32 x 32.
void append_cifar_records(std::string_view bytes, const std::string& where, ImageSplit& out);

// An array of uint8: (N, side, side, 3), planes (N, 3, side, side) or (N, 3 * side * side).
void append_array_images(const NpyArray&, const std::string& where, int64_t side, ImageSplit& out);

// An .npy or .npz file (members `data` or `arr_0`, and `labels`).
void append_image_file(const std::string& path, int64_t side, ImageSplit& out);

// Python's pickles (protocols 2 to 5) are not read: the Error names `form`, which holds the same
// images.
bool is_pickle(std::string_view bytes);
[[noreturn]] void fail_on_pickle(const std::string& where, const std::string& form);

int64_t image_count(const ImageSplit&, const ImageShape&);

// Moves `count` images and their labels out of `from`: the last ones, or those that image_at(seed)
// visits last, in file order. Error, naming `option`, when none would be left.
ImageSplit take_last(ImageSplit& from, const ImageShape&, int64_t count, const std::string& option);
ImageSplit take_chosen(ImageSplit& from, const ImageShape&, int64_t count, uint64_t seed,
                       const std::string& option);

// Of all choices of images that `prepare` makes.
inline constexpr uint64_t kSplitSeed = 11172018;

// ---- PNG files as images of 8 bits a channel, by libpng; sizes are checked before memory is taken

struct PngImage {
  ImageShape shape;             // channels: 1 (a grey file) or 3 (red, green, blue)
  std::vector<uint8_t> pixels;  // (height, width, channels)
};

inline constexpr int64_t kMostPngPixels = int64_t{1} << 26;  // 8,192 x 8,192

// Pixels as they are stored: no gamma or colour profile is applied. Palettes become colours, 16
// bits become the nearest 8, transparency is dropped. Error when the file is missing, no PNG,
// damaged, truncated or too large; `where` is what it names.
PngImage read_png(const std::string& path);
PngImage parse_png(std::string_view bytes, const std::string& where);

// Three equal channels for a grey image; an image of three channels stays.
PngImage as_rgb(PngImage);
}  // namespace weft
