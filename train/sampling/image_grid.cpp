// SPDX-License-Identifier: MIT
// Pixels of images and grids.
#include "train/sampling/image_grid.h"

#include <algorithm>

#include "kernels/view.h"

namespace weft {
namespace {

constexpr std::int64_t kSmallest = 64;  // pixels: what small images are enlarged to, about
constexpr Rgb kGround{255, 255, 255};
constexpr std::int32_t kUnknown = 128;

}  // namespace

Image image_of(const ImageShape& shape, std::span<const std::int32_t> tokens) {
  if (shape.channels != 1 && shape.channels != 3)
    fail(str("images of ", shape.channels, " channels cannot be drawn: 1 (grey) and 3 (colours) can"));
  WEFT_CHECK(static_cast<std::int64_t>(tokens.size()) == shape.tokens(), tokens.size(),
             " tokens for an image of ", shape.tokens());
  Image image(shape.width, shape.height);
  const auto value = [&](std::int64_t at) {
    const std::int32_t token = tokens[static_cast<std::size_t>(at)];
    if (token > 255) fail(str("token ", token, " is no brightness from 0 to 255"));
    return static_cast<std::uint8_t>(token < 0 ? kUnknown : token);
  };
  for (std::int64_t i = 0; i < shape.height * shape.width; ++i) {
    const std::int64_t at = i * shape.channels, step = shape.channels == 3 ? 1 : 0;
    image.pixels[static_cast<std::size_t>(i)] = {value(at), value(at + step), value(at + 2 * step)};
  }
  return image;
}

GridLayout::GridLayout(const ImageShape& shape, std::int64_t cells, std::int64_t in_row)
    : columns(std::min(cells, in_row)),
      rows((cells + columns - 1) / columns),
      zoom(std::max<std::int64_t>(1, kSmallest / std::max(shape.height, shape.width))),
      width(shape.width * zoom),
      height(shape.height * zoom) {}

Image draw_grid(const std::vector<Image>& cells, const GridLayout& g) {
  Image all(g.columns * (g.width + g.kGap) + g.kGap, g.rows * (g.height + g.kGap) + g.kGap);
  fill(all, 0, 0, all.width, all.height, kGround);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Image cell = cells[i];
    const auto index = static_cast<std::int64_t>(i);
    for (std::int64_t y = 0; y < cell.height; ++y)
      for (std::int64_t x = 0; x < cell.width; ++x)
        fill(all, g.x(index) + x * g.zoom, g.y(index) + y * g.zoom, g.zoom, g.zoom, cell.at(x, y));
  }
  return all;
}

}  // namespace weft
