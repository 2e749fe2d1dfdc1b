// SPDX-License-Identifier: MIT
// What training reads of images: whole, each once an epoch, a share of them from a second file, the
// same however a step is cut up; files that do not fit the config are refused.
#include "data/augment/image_items.h"
#include "data/batch_source.h"
#include "src/config/config.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr ImageShape kSmall{2, 2, 3};
constexpr int32_t kMixed = 100;  // images of the second file begin here

// Image i has the value first + i in every sub-pixel but the last, which is 255.
void write_images(const std::string& path, int64_t count, int32_t first,
                  const ImageShape& shape = kSmall) {
  ImageSplit train;
  for (int64_t i = 0; i < count; ++i) {
    train.pixels.insert(train.pixels.end(), static_cast<std::size_t>(shape.tokens()),
                        static_cast<uint8_t>(first + i));
    train.pixels.back() = 255;
  }
  write_image_file(path, shape, train, {}, {}, "");
}

class ImageBatches : public testing::Test {
 protected:
  ImageBatches() {
    write_images(dir_ / "a.h5", 10, 0);
    write_images(dir_ / "m.h5", 7, kMixed);
    config_.seed = 9;
    config_.model.context = kSmall.tokens();
    config_.model.position_axes = {kSmall.height, kSmall.width, kSmall.channels};
    config_.train.batch = 4;
    train_ = std::make_unique<TokenDataset>(dir_ / "a.h5", "train", 256);
    mix_ = std::make_unique<TokenDataset>(dir_ / "m.h5", "train", 256);
  }

  void mix(double rate, int64_t items = 0) {
    config_.data.mix = dir_ / "m.h5";
    config_.data.mix_rate = rate;
    config_.data.mix_items = items;
  }

  // The values of the images of these updates, one after the other.
  std::vector<int32_t> values(int64_t steps) const {
    const BatchSource source(config_, *train_, config_.data.mix.empty() ? nullptr : mix_.get());
    std::vector<int32_t> seen;
    HostBatch batch;
    for (int64_t step = 0; step < steps; ++step) {
      source.read(step, 0, config_.train.batch, kSmall.tokens(), batch);
      for (std::size_t at = 0; at < batch.tokens.size();
           at += static_cast<std::size_t>(kSmall.tokens())) {
        EXPECT_TRUE(std::all_of(batch.tokens.begin() + static_cast<std::ptrdiff_t>(at),
                                batch.tokens.begin() + static_cast<std::ptrdiff_t>(at) + 11,
                                [&](int32_t t) { return t == batch.tokens[at]; }));
        EXPECT_EQ(batch.tokens[at + 11], 255) << "whole images, from their beginning";
        seen.push_back(batch.tokens[at]);
      }
    }
    return seen;
  }

  std::string error(const TokenDataset& train, const TokenDataset* mix = nullptr) const {
    return error_of([&] { BatchSource(config_, train, mix); });
  }

  TempDir dir_;
  Config config_;
  std::unique_ptr<TokenDataset> train_, mix_;
};

TEST_F(ImageBatches, EachImageComesOnceInAnEpochInTheOrderOfImageAt) {
  const auto seen = values(5);  // two epochs of 10
  ASSERT_EQ(seen.size(), 20u);
  for (int64_t i = 0; i < 20; ++i)
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], image_at(9, i, 10)) << i;
}

TEST_F(ImageBatches, AShareComesFromTheSecondFileEachOfItsImagesAsOften) {
  mix(0.25);
  const auto seen = values(1000);
  const auto mixed = std::count_if(seen.begin(), seen.end(), [](int32_t v) { return v >= kMixed; });
  EXPECT_NEAR(static_cast<double>(mixed), 1000, 140) << "of 4,000, five standard deviations";
  std::map<int32_t, int> times;
  for (const int32_t v : seen) ++times[v];
  EXPECT_EQ(times.size(), 17u) << "all of both files";
  for (const auto& [value, n] : times)
    EXPECT_NEAR(n, value >= kMixed ? 1000.0 / 7 : 300, 60) << value;
}

TEST_F(ImageBatches, OnlySomeOfTheSecondFileAndAllOrNoneOfIt) {
  mix(1, 3);
  const auto seen = values(30);
  std::map<int32_t, int> times;
  for (const int32_t v : seen) ++times[v];
  ASSERT_EQ(times.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(times[kMixed + i], 40) << "each once in three";
  mix(1, 1000);
  for (const int32_t v : values(7)) EXPECT_GE(v, kMixed);
  mix(0);
  for (const int32_t v : values(7)) EXPECT_LT(v, kMixed);
}

TEST_F(ImageBatches, FilesThatDoNotFit) {
  write_images(dir_ / "wide.h5", 3, 0, {2, 4, 3});
  write_images(dir_ / "turned.h5", 3, 0, {3, 2, 2});
  const std::vector<uint16_t> stream(100, 1);
  write_token_file(dir_ / "stream.h5", stream, 256, {1, 0, 0}, "");
  const TokenDataset wide(dir_ / "wide.h5", "train", 256), turned(dir_ / "turned.h5", "train", 256),
      text(dir_ / "stream.h5", "train", 256);
  EXPECT_EQ(error(*train_, mix_.get()), "");
  EXPECT_EQ(error(text), "") << "a stream is read in windows";
  EXPECT_CONTAINS(error(wide), "model.context is 12, but an image of " + (dir_ / "wide.h5") +
                                   " has 2 x 4 x 3 = 24 tokens");
  EXPECT_CONTAINS(error(turned), "model.position_axes are those of images of 2 x 2 x 3, " +
                                     (dir_ / "turned.h5") + " has 3 x 2 x 2");
  EXPECT_CONTAINS(error(*train_, &wide),
                  "data.mix: " + (dir_ / "wide.h5") + " has images of 2 x 4 x 3");
  EXPECT_CONTAINS(error(*train_, &turned), "has images of 3 x 2 x 2");
  EXPECT_CONTAINS(error(*train_, &text), "stream.h5 has no images");
  EXPECT_CONTAINS(error(text, mix_.get()),
                  "stream.h5 has a stream of tokens; only images are mixed");
  config_.data.separator = 10;
  EXPECT_CONTAINS(error(*train_), "data.separator: parts texts into documents, and " +
                                      (dir_ / "a.h5") + " has images; leave it out");
  EXPECT_EQ(error(text), "");
  config_.data.separator = -1;
  config_.model.position_axes = {2, 6};
  EXPECT_CONTAINS(error(*train_),
                  "model.position_axes: images have 3 axes (rows, columns, channels), found 2");
  config_.augment.flip = true;
  EXPECT_CONTAINS(error(text), "stream.h5 has a stream of tokens; only images are augmented");
}
}  // namespace
}  // namespace weft
