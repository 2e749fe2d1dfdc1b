// SPDX-License-Identifier: MIT
// Data files of images, and the order in which training sees them.
#include "data/formats/image_set.h"

#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
std::vector<int32_t> all_of(const TokenDataset& data) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(data.size()));
  data.read(0, tokens);
  return tokens;
}

TEST(ImageFile, RoundTripWithLabelsAndAnEmptySplit) {
  TempDir dir;
  const ImageShape shape{2, 3, 1};
  const ImageSplit train{{0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255}, {7, 65535}},
      valid{{6, 5, 4, 3, 2, 1}, {}};
  const std::string line =
      write_image_file(dir / "a.h5", shape, train, valid, {}, "what it is", {"x", "y"});
  EXPECT_EQ(line, "wrote " + (dir / "a.h5") + ": 3 images of 2 x 3 x 1 (train 2, valid 1, test 0)");
  const Hdf5File file = Hdf5File::open(dir / "a.h5");
  EXPECT_EQ(file.shape_of("/train"), (std::vector<int64_t>{2, 2, 3, 1}));
  EXPECT_EQ(file.type_of("/train"), StoredType::u8);
  EXPECT_EQ(file.shape_of("/test"), (std::vector<int64_t>{0, 2, 3, 1}));
  EXPECT_EQ(file.type_of("/labels/train"), StoredType::u16);
  EXPECT_FALSE(file.has("/labels/valid"));
  EXPECT_EQ(file.text_attribute("format"), "weft tokens");
  EXPECT_EQ(file.int_attribute("height"), 2);
  EXPECT_EQ(file.int_attribute("width"), 3);
  EXPECT_EQ(file.int_attribute("channels"), 1);
  const TokenDataset data(dir / "a.h5", "train", 256);
  EXPECT_EQ(data.image(), shape);
  EXPECT_EQ(data.images(), 2);
  EXPECT_EQ(all_of(data), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255}));
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "train", 255); }),
                  "token 11 of train is 255, outside the vocabulary of 255");
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "test", 256); }),
                  "the split test is empty");
  const std::string before = read_file(dir / "a.h5");
  EXPECT_CONTAINS(error_of([&] { write_image_file(dir / "a.h5", shape, {}, valid, {}, ""); }),
                  "no image is left for train");
  EXPECT_CONTAINS(error_of([&] {
                    write_image_file(dir / "a.h5", shape, {{1, 2}, {}}, {}, {}, "");
                  }),
                  "which is no number of 2 x 3 x 1 images");
  EXPECT_CONTAINS(error_of([&] {
                    write_image_file(dir / "a.h5", shape, {train.pixels, {1}}, {}, {}, "");
                  }),
                  "2 images and 1 labels");
  EXPECT_EQ(read_file(dir / "a.h5"), before);
}

// As h5py writes them from an array of any type.
TEST(ImageFile, LabelsOutOfRangeAreNamed) {
  TempDir dir;
  Config config;
  config.data.labels = true;
  config.data.classes = 65536;
  const std::vector<uint8_t> pixels(3);
  const auto error = [&](const std::vector<int64_t>& labels) {
    Hdf5File file = Hdf5File::create(dir / "a.h5");
    file.write("/train", StoredType::u8, {3, 1, 1, 1}, pixels.data());
    file.write("/labels/train", StoredType::i64, {3}, labels.data());
    file.commit();
    return error_of([&] {
      EXPECT_EQ(labels_of(config, TokenDataset(dir / "a.h5", "train", 256)),
                (std::vector<uint16_t>{0, 3, 65535}));
    });
  };
  EXPECT_EQ(error({0, 3, 65535}), "");
  EXPECT_CONTAINS(error({0, -1, 3}),
                  "/labels/train: image 1 is of class -1, expected 0 to 65535; set data.classes");
  EXPECT_CONTAINS(error({0, 3, 65536}), "image 2 is of class 65536, expected 0 to 65535");
  EXPECT_CONTAINS(error({int64_t{1} << 32, 3, 5}), "image 0 is of class 4294967296, expected");
  config.data.classes = 4;
  EXPECT_CONTAINS(error({0, 3, 4}), "image 2 is of class 4, expected 0 to 3; set data.classes");
}

TEST(ImageFile, DamagedOnesNeverCrash) {
  TempDir dir;
  ImageSplit train;
  train.pixels.resize(12 * 8, 3);
  write_image_file(dir / "a.h5", {2, 2, 3}, train, train, {}, "");
  const std::string whole = read_file(dir / "a.h5");
  std::mt19937 random(2);
  for (std::size_t round = 0; round < 300; ++round) {
    std::string bytes = whole.substr(0, round % 3 == 0 ? random() % whole.size() : whole.size());
    for (int k = 0; k < 3 && !bytes.empty(); ++k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    write_file(dir / "b.h5", bytes);
    error_of([&] { TokenDataset(dir / "b.h5", "train", 256); });
  }
}

std::vector<int64_t> epoch(uint64_t seed, int64_t number, int64_t count) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(image_at(seed, number * count + i, count));
  return order;
}

TEST(ImageAt, EveryEpochShowsEachImageOnce) {
  std::vector<int64_t> counts(100);
  std::iota(counts.begin(), counts.end(), 1);
  counts.push_back(48000);
  for (const int64_t count : counts)
    for (const int64_t number : {0, 1, 7}) {
      std::vector<int64_t> order = epoch(3, number, count), all(order.size());
      std::iota(all.begin(), all.end(), 0);
      if (count > 20) {
        EXPECT_NE(order, epoch(3, number + 1, count)) << count << ": epochs differ";
        EXPECT_NE(order, epoch(4, number, count)) << count << ": seeds differ";
      }
      std::sort(order.begin(), order.end());
      ASSERT_EQ(order, all) << count;
    }
  EXPECT_CONTAINS(error_of([] { image_at(0, -1, 3); }), "image -1 of an order of 3");
  EXPECT_CONTAINS(error_of([] { image_at(0, 0, 0); }), "image 0 of an order of 0");
}

TEST(ImageAt, EveryImageComesAtEveryPlaceAsOften) {
  for (const int64_t count : {2, 3, 4, 5, 10, 13, 17, 40}) {
    constexpr int64_t kEpochs = 4000;
    std::vector<double> seen(static_cast<std::size_t>(count * count));
    for (int64_t number = 0; number < kEpochs; ++number)
      for (int64_t i = 0; i < count; ++i)
        ++seen[static_cast<std::size_t>(i * count + image_at(11, number * count + i, count))];
    const double expected = static_cast<double>(kEpochs) / static_cast<double>(count);
    // chi-squared: about (count - 1)^2 degrees of freedom, each of mean 1 and variance 2
    double chi = 0;
    for (const double n : seen) chi += (n - expected) * (n - expected) / expected;
    const double degrees = static_cast<double>((count - 1) * (count - 1));
    EXPECT_LT(chi, degrees + 5 * std::sqrt(2 * degrees)) << count;
  }
}

TEST(ImageAt, NeighboursInTheOrderAreNoNeighboursInTheFile) {
  const std::vector<int64_t> order = epoch(5, 2, 48000);
  double near = 0, correlation = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    near += std::abs(order[i] - order[i - 1]) <= 10;
    correlation += (static_cast<double>(order[i]) / 47999 - 0.5) *
                   (static_cast<double>(order[i - 1]) / 47999 - 0.5);
  }
  EXPECT_NEAR(near, 20, 20) << "48,000 pairs, 20 of 48,000 places are near";
  EXPECT_NEAR(correlation / 48000 * 12, 0, 0.02);
}
}  // namespace
}  // namespace weft
