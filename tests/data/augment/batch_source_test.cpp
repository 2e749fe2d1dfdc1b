// SPDX-License-Identifier: MIT
// Batches of images: augmented as the model is told, mixed from two files, pure functions of their
// place. Windows of text that are shorter than the context lie in whole rows of it.
#include "data/batch_source.h"

#include "data/augment/image_items.h"
#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "tests/temp_dir.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr ImageShape kBatchShape = {4, 4, 3};

Config image_config() {
  Config config;
  config.model.vocab = 256;
  config.model.context = kBatchShape.tokens();
  config.model.position_axes = {4, 4, 3};
  config.train.batch = 8;
  config.seed = 3;
  return config;
}

// Every kind that reorders.
Config kinds_in_batches() {
  Config config = image_config();
  AugmentConfig& a = config.augment;
  a.rotation = a.color = a.transposition = a.reversal = true;
  a.jigsaw = 2;
  a.random_order = 5;
  return config;
}

// Images whose sub-pixels count up from 7 i in image i of a file, modulo 128; those of the second
// file have 128 added.
class BatchSourceImages : public testing::Test {
 protected:
  BatchSourceImages() {
    write("a.h5", 0);
    write("b.h5", 128);
  }

  void write(const std::string& name, int base) {
    std::vector<uint8_t> pixels;
    for (int i = 0; i < 10; ++i) {
      for (int t = 0; t < kBatchShape.tokens(); ++t)
        pixels.push_back(static_cast<uint8_t>(base + (i * 7 + t) % 128));
    }
    Hdf5File file = Hdf5File::create(dir_ / name);
    file.write("/train", StoredType::u8, {10, 4, 4, 3}, pixels.data());
    file.commit();
  }

  HostBatch read(const Config& config, int64_t step, int64_t first, int64_t count) const {
    const TokenDataset a(dir_ / "a.h5", "train", 256), b(dir_ / "b.h5", "train", 256);
    HostBatch out;
    BatchSource(config, a, config.data.mix.empty() ? nullptr : &b)
        .read(step, first, count, kBatchShape.tokens(), out);
    return out;
  }

  TempDir dir_;
};

std::vector<int32_t> part(const std::vector<int32_t>& all, int64_t i, int64_t size) {
  return {all.begin() + i * size, all.begin() + (i + 1) * size};
}

TEST_F(BatchSourceImages, AreAugmentedAsTold) {
  Config config = kinds_in_batches();
  const Augmenter augmenter(config, kBatchShape);
  const HostBatch batch = read(config, 2, 0, 8);
  const int64_t n = kBatchShape.tokens();
  ASSERT_EQ(batch.positions.size(), batch.tokens.size());
  ASSERT_EQ(batch.conditions.size(), 8 * 6u);
  EXPECT_TRUE(batch.offsets.empty());
  for (int64_t i = 0; i < 8; ++i) {
    const AugmentChoice choice = augmenter.draw(config.seed, 2 * 8 + i);
    std::vector<int32_t> rows(6);
    augmenter.rows(choice, rows);
    EXPECT_EQ(part(batch.conditions, i, 6), rows);
    const auto tokens = part(batch.tokens, i, n), positions = part(batch.positions, i, n);
    EXPECT_EQ(positions, augmenter.source(choice));
    // Back in their places the tokens count up from the image's first: positions name where they
    // belong.
    std::vector<int32_t> image(static_cast<std::size_t>(n));
    for (std::size_t t = 0; t < tokens.size(); ++t)
      image[static_cast<std::size_t>(positions[t])] = tokens[t];
    for (std::size_t t = 1; t < image.size(); ++t)
      ASSERT_EQ(image[t], (image[0] + static_cast<int>(t)) % 128);
    EXPECT_EQ(image[0] % 7, 0);
  }
  const HostBatch later = read(config, 2, 5, 3);
  EXPECT_EQ(later.tokens, std::vector<int32_t>(batch.tokens.begin() + 5 * n, batch.tokens.end()));
  EXPECT_EQ(later.conditions,
            std::vector<int32_t>(batch.conditions.begin() + 30, batch.conditions.end()));
  EXPECT_NE(read(config, 3, 0, 8).conditions, batch.conditions);
}

TEST_F(BatchSourceImages, TheModelIsToldOfTheMix) {
  Config config = image_config();
  config.data.mix = "b.h5";
  config.data.mix_rate = 0.25;
  config.data.mix_items = 2;
  int mixed = 0;
  for (int64_t step = 0; step < 250; ++step) {
    const HostBatch batch = read(config, step, 0, 8);
    ASSERT_TRUE(batch.positions.empty()) << "mixing reorders nothing";
    ASSERT_EQ(batch.conditions.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
      const int first = batch.tokens[i * static_cast<std::size_t>(kBatchShape.tokens())];
      ASSERT_EQ(batch.conditions[i], first >= 128 ? 1 : 0);
      if (first >= 128) {
        ASSERT_TRUE(first == 128 || first == 135) << "only the first two images";
      }
      mixed += batch.conditions[i];
    }
  }
  EXPECT_NEAR(mixed, 500, 60);
  config.augment.conditional = false;
  EXPECT_TRUE(read(config, 0, 0, 8).conditions.empty());
}

TEST_F(BatchSourceImages, ErrorsComeBeforeTraining) {
  Config config = image_config();
  config.augment.jigsaw = 3;
  EXPECT_CONTAINS(error_of([&] { read(config, 0, 0, 1); }), "augment.jigsaw: 3 does not divide");
}

TEST(BatchSourceText, ShortWindowsLieInWholeRowsOfTheContext) {
  const TempDir dir;
  write_token_file(dir / "text.h5", std::vector<uint16_t>(500, 1), 256, {1, 0, 0},
                   "made by a test");
  Config config;
  config.model.context = 240;
  config.model.position_axes = {4, 10, 6};
  const TokenDataset data(dir / "text.h5", "train", 256);
  const BatchSource source(config, data, nullptr);
  HostBatch batch;
  source.read(0, 0, 300, 64, batch);
  ASSERT_EQ(batch.offsets.size(), 300u);
  std::set<int32_t> seen(batch.offsets.begin(), batch.offsets.end());
  EXPECT_EQ(seen, (std::set<int32_t>{0, 60, 120})) << "rows of 10 x 6 positions, and 64 fit";
  source.read(0, 0, 2, 240, batch);
  EXPECT_TRUE(batch.offsets.empty()) << "a whole context lies at 0";
}
}  // namespace
}  // namespace weft
