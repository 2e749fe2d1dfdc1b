// SPDX-License-Identifier: MIT
// Made-up images and the config that learns them.
#include "tests/train/formats/image_training.h"

#include "kernels/philox.h"
#include "src/config/config.h"
#include "src/config/read_config.h"

namespace weft {
namespace {
uint32_t level_of(uint32_t image, uint32_t seed) {
  return philox4x32({image, seed, 0, 0}, 11)[0] % 4;
}

std::vector<uint8_t> tiny_split(int64_t images, uint32_t seed, const ImageShape& shape) {
  std::vector<uint8_t> pixels;
  for (uint32_t i = 0; i < images; ++i) {
    const uint32_t level = level_of(i, seed);
    for (int64_t y = 0; y < shape.height; ++y)
      for (int64_t x = 0; x < shape.width; ++x)
        for (int64_t c = 0; c < shape.channels; ++c)
          pixels.push_back(
              static_cast<uint8_t>((y < shape.height / 2 ? 160 : 32) + 16 * level - 4 * x + c));
  }
  return pixels;
}
}  // namespace

void write_tiny_images(const std::string& path, int64_t valid, ImageShape shape, bool labels) {
  const auto split = [&](int64_t images, uint32_t seed) {
    ImageSplit s{tiny_split(images, seed, shape), {}};
    for (uint32_t i = 0; i < images && labels; ++i)
      s.labels.push_back(static_cast<uint16_t>(level_of(i, seed)));
    return s;
  };
  write_image_file(path, shape, split(24, 1), split(valid, 2), split(5, 3), "made by a test");
}

RunConfig tiny_image_config(const std::string& folder, const std::vector<std::string>& overrides) {
  return parse_config(
      str("name: tiny_images\nseed: 3\nprecision: f32\ndata:\n  path: ", folder,
          "/images.h5\n"
          "model:\n  context: 48\n  layers: 2\n  width: 32\n  heads: 2\n"
          "  position_axes: [4, 4, 3]\n"
          "  attention:\n    - {kind: strided, stride: 12}\n    - {kind: local, stride: 12}\n"
          "train:\n  steps: 20\n  batch: 4\n  learning_rate: 1e-2\n  warmup: 5\n"
          "  ema_decay: 0.9\n  log_every: 4\n  eval_every: 10\n  save_every: 0\n"),
      folder + "/tiny_images.yaml", overrides);
}
}  // namespace weft
