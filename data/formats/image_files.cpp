// SPDX-License-Identifier: MIT
#include "data/formats/image_files.h"

#include "data/formats/archive.h"
#include "data/prepare/raw_file.h"
#include "src/config/names.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <png.h>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kCifarSide = 32, kCifarLabels = 10, kMostLabels = 65536;

// (count, channels, height, width) -> (count, height, width, channels)
void append_planes(std::string_view planes, const ImageShape& shape, std::vector<uint8_t>& out) {
  const int64_t places = shape.height * shape.width, size = shape.tokens();
  const std::size_t first = out.size();
  out.resize(first + planes.size());
  for (int64_t image = 0; image * size < std::ssize(planes); ++image) {
    const char* const from = planes.data() + image * size;
    uint8_t* const to = out.data() + first + image * size;
    for (int64_t p = 0; p < places; ++p)
      for (int64_t c = 0; c < shape.channels; ++c)
        to[p * shape.channels + c] = static_cast<uint8_t>(from[c * places + p]);
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return "(" + joined(shape) + (shape.size() == 1 ? ",)" : ")");
}

void append_labels(const std::vector<int64_t>& labels, int64_t images, int64_t limit,
                   const std::string& where, ImageSplit& out) {
  if (std::ssize(labels) != images)
    fail(where, ": has ", images, " images and ", labels.size(), " labels");
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] < 0 || labels[i] >= limit)
      fail(where, ": the label of image ", i, " is ", labels[i], ", expected 0 to ", limit - 1);
  out.labels.insert(out.labels.end(), labels.begin(), labels.end());
}

std::vector<int64_t> integers_of(const NpyArray& array, const std::string& where) {
  if (array.shape.size() != 1)
    fail(where, ": labels have the shape ", shape_text(array.shape), ", expected one axis");
  std::vector<int64_t> values(array.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = array.value(static_cast<int64_t>(i));
  return values;
}

// Member `data` or `arr_0`, and `labels`.
void append_npz_images(const std::string& path, int64_t side, ImageSplit& out) {
  std::optional<std::string> data, labels;
  std::string name;
  const auto is_data = [](const std::string& member) {
    return member == "data.npy" || member == "arr_0.npy";
  };
  for_each_member(
      path, [&](const std::string& member) { return is_data(member) || member == "labels.npy"; },
      [&](const std::string& member, std::string bytes) {
        std::optional<std::string>& place = is_data(member) ? data : labels;
        if (place) fail(path, ": has ", member, " beside ", is_data(member) ? name : member);
        if (is_data(member)) name = member;
        place = std::move(bytes);
      },
      {.member = int64_t{64} << 30});
  if (!data) fail(path, ": has no member data.npy or arr_0.npy, where .npz files have the images");
  const int64_t before = image_count(out, square_rgb(side));
  append_array_images(parse_npy(*data, path + ": " + name), path + ": " + name, side, out);
  if (!labels) return;
  const std::string where = path + ": labels.npy";
  append_labels(integers_of(parse_npy(*labels, where), where),
                image_count(out, square_rgb(side)) - before, kMostLabels, path, out);
}

constexpr int64_t kMostPngBytes = 16 * kMostPngPixels;
constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";

uint32_t big_endian(std::string_view four) {
  uint32_t value = 0;
  for (const char byte : four) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// The signature and the critical chunks. The others change no stored pixel: by gamma and profiles
// libpng would convert them. Every chunk from the first to IEND lies within the bytes; libpng does
// not miss what follows the pixels.
std::string critical_chunks(std::string_view bytes, const std::string& where) {
  constexpr std::size_t kAround = 12;  // length, type and checksum of a chunk
  if (!bytes.starts_with(kSignature))
    fail(where, ": is not a PNG file (", bytes.size(), " bytes of something else)");
  std::string kept(kSignature);
  for (std::size_t at = kSignature.size();;) {
    const std::size_t left = bytes.size() - at;
    const std::size_t size = left < kAround ? 0 : big_endian(bytes.substr(at, 4));
    if (left < kAround || size > left - kAround)
      fail(where, ": is truncated or damaged: its ", bytes.size(), " bytes end within a chunk");
    const std::string_view chunk = bytes.substr(at, size + kAround);
    constexpr char kAncillary = 0x20;  // a small first letter
    if ((chunk[4] & kAncillary) == 0) kept += chunk;
    if (chunk.substr(4, 4) == "IEND") return kept;
    at += chunk.size();
  }
}
}  // namespace

ImageShape square_rgb(int64_t side) { return {side, side, 3}; }

void append_cifar_records(std::string_view bytes, const std::string& where, ImageSplit& out) {
  const ImageShape shape = square_rgb(kCifarSide);
  const auto record = static_cast<std::size_t>(1 + shape.tokens());
  if (bytes.empty() || bytes.size() % record != 0)
    fail(where, ": has ", bytes.size(), " bytes, which is no whole number of CIFAR-10 records of ",
         record, " (a label and three planes of 32 x 32): truncated, or another file");
  for (std::size_t at = 0; at < bytes.size(); at += record)
    if (const int label = static_cast<uint8_t>(bytes[at]); label >= kCifarLabels)
      fail(where, ": the label of record ", at / record, " is ", label,
           ", expected 0 to 9: damaged, or not CIFAR-10");
  out.pixels.reserve(out.pixels.size() + bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += record) {
    out.labels.push_back(static_cast<uint8_t>(bytes[at]));
    append_planes(bytes.substr(at + 1, record - 1), shape, out.pixels);
  }
}

void append_array_images(const NpyArray& array, const std::string& where, int64_t side,
                         ImageSplit& out) {
  const ImageShape shape = square_rgb(side);
  if (array.kind != 'u' || array.item != 1)
    fail(where, ": holds elements of type '", array.kind, array.item,
         "', expected uint8 pixels ('u1'); in numpy: a.astype(numpy.uint8)");
  const std::vector<int64_t> sizes(array.shape.begin() + (array.shape.empty() ? 0 : 1),
                                   array.shape.end());
  const bool whole = sizes == std::vector{side, side, shape.channels};
  if (!whole && sizes != std::vector{shape.channels, side, side} &&
      sizes != std::vector{shape.tokens()})
    fail(where, ": has the shape ", shape_text(array.shape), ", expected images of ", side, " x ",
         side, ": (N, ", side, ", ", side, ", 3), (N, 3, ", side, ", ", side, ") or (N, ",
         shape.tokens(), ")");
  if (array.shape[0] == 0) fail(where, ": has no images");
  if (whole)
    out.pixels.insert(out.pixels.end(), array.data.begin(), array.data.end());
  else
    append_planes(array.data, shape, out.pixels);
}

bool is_pickle(std::string_view bytes) {
  return bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

void fail_on_pickle(const std::string& where, const std::string& form) {
  fail(where, ": is a Python pickle, which weft does not read; fetch ", form);
}

void append_image_file(const std::string& path, int64_t side, ImageSplit& out) {
  if (is_archive(file_beginning(path))) return append_npz_images(path, side, out);
  const std::vector<char> raw = read_raw_file(path);
  const std::string_view bytes(raw.data(), raw.size());
  if (is_npy(bytes)) return append_array_images(parse_npy(bytes, path), path, side, out);
  if (is_pickle(bytes)) fail_on_pickle(path, "the same images as .npz files");
  fail(path, ": is no .npy or .npz file (", bytes.size(), " bytes of something else)");
}

int64_t image_count(const ImageSplit& split, const ImageShape& shape) {
  return std::ssize(split.pixels) / shape.tokens();
}

ImageSplit take_last(ImageSplit& from, const ImageShape& shape, int64_t count,
                     const std::string& option) {
  const int64_t all = image_count(from, shape);
  if (count < 0 || count >= all)
    fail(option, ": cannot take ", count, " of ", all,
         " images and leave some to train on; choose ", option, " with another number");
  const auto cut = [&](auto& values, int64_t first) {
    std::decay_t<decltype(values)> tail(values.begin() + first, values.end());
    values.resize(first);
    return tail;
  };
  ImageSplit taken;
  if (!from.labels.empty()) taken.labels = cut(from.labels, all - count);
  taken.pixels = cut(from.pixels, (all - count) * shape.tokens());
  return taken;
}

ImageSplit take_chosen(ImageSplit& from, const ImageShape& shape, int64_t count, uint64_t seed,
                       const std::string& option) {
  const int64_t all = image_count(from, shape), size = shape.tokens();
  std::vector<bool> chosen(all);
  for (int64_t i = std::max<int64_t>(all - count, 0); i < all; ++i)
    chosen[image_at(seed, i, all)] = true;
  // Those that stay move forward, the chosen ones to the end.
  ImageSplit ordered;
  int64_t stay = 0;
  for (int64_t i = 0; i < all; ++i) {
    const auto pixels = from.pixels.begin() + i * size;
    if (chosen[i]) {
      ordered.pixels.insert(ordered.pixels.end(), pixels, pixels + size);
      if (!from.labels.empty()) ordered.labels.push_back(from.labels[i]);
      continue;
    }
    if (stay < i) std::copy_n(pixels, size, from.pixels.begin() + stay * size);
    if (stay < i && !from.labels.empty()) from.labels[stay] = from.labels[i];
    ++stay;
  }
  std::ranges::copy(ordered.pixels, from.pixels.begin() + stay * size);
  std::ranges::copy(ordered.labels, from.labels.end() - ordered.labels.size());
  return take_last(from, shape, count, option);
}

PngImage parse_png(std::string_view bytes, const std::string& where) {
  const std::string kept = critical_chunks(bytes, where);
  png_image png{};
  const std::unique_ptr<png_image, void (*)(png_image*)> guard(&png, png_image_free);
  png.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(&png, kept.data(), kept.size()))
    fail(where, ": is damaged or no PNG file: ", png.message);
  const int64_t height = png.height, width = png.width;
  if (height > kMostPngPixels / width)
    fail(where, ": has ", height, " x ", width, " pixels, more than the ", kMostPngPixels,
         " that are read");
  const bool alpha = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  const int64_t channels = (png.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1;
  // 16 bits count as sRGB, not as linear light: no value is converted. Transparency is read and
  // left out: it changes no colour.
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  png.format =
      (channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY) | (alpha ? PNG_FORMAT_FLAG_ALPHA : 0);
  PngImage image{{height, width, channels}, std::vector<uint8_t>(PNG_IMAGE_SIZE(png))};
  if (!png_image_finish_read(&png, nullptr, image.pixels.data(), 0, nullptr))
    fail(where, ": is damaged or truncated: ", png.message);
  if (!alpha) return image;
  const int64_t stored = channels + 1;
  for (int64_t p = 0; p < height * width; ++p)
    for (int64_t c = 0; c < channels; ++c)
      image.pixels[p * channels + c] = image.pixels[p * stored + c];
  image.pixels.resize(image.shape.tokens());
  return image;
}

PngImage read_png(const std::string& path) {
  const std::vector<char> bytes = read_raw_file(path, kMostPngBytes);
  return parse_png({bytes.data(), bytes.size()}, path);
}

PngImage as_rgb(PngImage image) {
  if (image.shape.channels == 3) return image;
  PngImage rgb{{image.shape.height, image.shape.width, 3}, {}};
  rgb.pixels.reserve(image.pixels.size() * 3);
  for (const uint8_t grey : image.pixels) rgb.pixels.insert(rgb.pixels.end(), 3, grey);
  return rgb;
}
}  // namespace weft
