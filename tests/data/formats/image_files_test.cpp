// SPDX-License-Identifier: MIT
// Readers of raw image files: every layout gives the same pixels, every damage one error that names
// the place.
#include "data/formats/image_files.h"

#include "data/formats/archive.h"
#include "tests/data/formats/raw_images.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
ImageSplit records(const std::string& bytes) {
  ImageSplit split;
  append_cifar_records(bytes, "a.bin", split);
  return split;
}

ImageSplit array(const std::string& npy, int64_t side = 32) {
  ImageSplit split;
  append_array_images(parse_npy(npy, "a.npy"), "a.npy", side, split);
  return split;
}

ImageSplit image_file(const std::string& path, int64_t side = 32) {
  ImageSplit split;
  append_image_file(path, side, split);
  return split;
}

TEST(ImageFiles, RecordsBecomeRowsColumnsChannels) {
  const ImageSplit split = records(cifar_records(7, 5));
  EXPECT_EQ(split.pixels, expected_images(7, 5));
  EXPECT_EQ(split.labels, (std::vector<uint16_t>{7, 8, 9, 0, 1}));
  // By hand: a red plane of 1, a green one of 2, a blue one of 3, but for the last place of the
  // first row.
  std::string one =
      std::string(1, 4) + std::string(1024, 1) + std::string(1024, 2) + std::string(1024, 3);
  one[1 + 1024 + 31] = 9;
  const ImageSplit planes = records(one);
  EXPECT_EQ(std::vector<int>(planes.pixels.begin() + 90, planes.pixels.begin() + 99),
            (std::vector<int>{1, 2, 3, 1, 9, 3, 1, 2, 3}));
}

TEST(ImageFiles, RecordsThatAreNone) {
  const std::string good = cifar_records(0, 3);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{3072}, std::size_t{3074}, good.size() - 1})
    EXPECT_CONTAINS(
        error_of([&] { records(good.substr(0, size)); }),
        str("a.bin: has ", size, " bytes, which is no whole number of CIFAR-10 records of 3073"));
  std::string wrong = good;
  wrong[2 * 3073] = 10;
  EXPECT_EQ(error_of([&] { records(wrong); }),
            "a.bin: the label of record 2 is 10, expected 0 to 9: damaged, or not CIFAR-10");
}

TEST(ImageFiles, ArraysInEveryLayout) {
  EXPECT_EQ(array(npy_planes(1, 3)).pixels, expected_images(1, 3));
  EXPECT_EQ(array(npy_pixels(1, 3)).pixels, expected_images(1, 3));
  std::string four = npy_header("|u1", {2, 3, 64, 64});
  four += image_planes(5, 12288) + image_planes(6, 12288);
  EXPECT_EQ(array(four, 64).pixels, expected_images(5, 2, 12288));
  EXPECT_TRUE(array(four, 64).labels.empty());
}

TEST(ImageFiles, ArraysThatDoNotFit) {
  const auto error = [](const std::vector<int64_t>& shape, const std::string& type = "|u1") {
    int64_t size = type[2] - '0';
    for (const int64_t axis : shape) size *= axis;
    return error_of([&] {
      array(npy_header(type, shape) + std::string(static_cast<std::size_t>(size), '\1'));
    });
  };
  EXPECT_EQ(error({2, 32, 32, 3}), "");
  EXPECT_EQ(error({2, 32, 32}),
            "a.npy: has the shape (2, 32, 32), expected images of 32 x 32: (N, 32, 32, 3), (N, 3, "
            "32, 32) or "
            "(N, 3072)");
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{},
                                            {3072},
                                            {2, 3071},
                                            {2, 64, 64, 3},
                                            {2, 32, 3, 32},
                                            {1, 2, 32, 32, 3},
                                            {2, 0}})
    EXPECT_CONTAINS(error(shape), "expected images of 32 x 32");
  EXPECT_EQ(error({0, 32, 32, 3}), "a.npy: has no images");
  EXPECT_CONTAINS(error({1, 3072}, "|i1"), "holds elements of type 'i1', expected uint8");
  EXPECT_CONTAINS(error({1, 3072}, "<u2"), "holds elements of type 'u2', expected uint8");
}

TEST(ImageFiles, NpzHasLabels) {
  if (!has_archives()) GTEST_SKIP() << "no libarchive";
  TempDir dir;
  const std::string labels =
      npy_header("<i8", {3}) + little_endian(1, 8) + little_endian(1000, 8) + little_endian(7, 8);
  const std::string mean = npy_header("<f4", {1}) + std::string(4, '\0');  // is not looked at
  write_file(dir / "a.npz",
             zip_of({{"mean.npy", mean}, {"labels.npy", labels}, {"data.npy", npy_planes(0, 3)}}));
  const ImageSplit split = image_file(dir / "a.npz");
  EXPECT_EQ(split.pixels, expected_images(0, 3));
  EXPECT_EQ(split.labels, (std::vector<uint16_t>{1, 1000, 7}));
  write_file(dir / "b.npz", zip_of({{"arr_0.npy", npy_pixels(4, 2)}}));
  EXPECT_EQ(image_file(dir / "b.npz").pixels, expected_images(4, 2));

  const auto error = [&](const std::vector<std::pair<std::string, std::string>>& members) {
    write_file(dir / "c.npz", zip_of(members));
    return error_of([&] { image_file(dir / "c.npz"); });
  };
  EXPECT_CONTAINS(error({{"x.npy", npy_pixels(0, 1)}}),
                  "c.npz: has no member data.npy or arr_0.npy");
  EXPECT_CONTAINS(error({{"data.npy", npy_pixels(0, 1)}, {"arr_0.npy", npy_pixels(0, 1)}}),
                  "c.npz: has arr_0.npy beside data.npy");
  EXPECT_CONTAINS(error({{"data.npy", npy_pixels(0, 2)}, {"labels.npy", labels}}),
                  "c.npz: has 2 images and 3 labels");
  EXPECT_CONTAINS(error({{"data.npy", npy_pixels(0, 1)},
                         {"labels.npy", npy_header("<i4", {1}) + "\xff\xff\xff\xff"}}),
                  "c.npz: the label of image 0 is -1, expected 0 to 65535");
  EXPECT_CONTAINS(
      error({{"data.npy", npy_pixels(0, 1)}, {"labels.npy", npy_header("|u1", {1, 1}) + "a"}}),
      "labels have the shape (1, 1), expected one axis");
  EXPECT_CONTAINS(error({{"data.npy", npy_pixels(0, 2).substr(0, 5000)}}),
                  "c.npz: data.npy: its header promises");
  const std::string whole = read_file(dir / "a.npz");
  for (std::size_t size = 0; size < whole.size(); size += 97) {
    write_file(dir / "cut.npz", whole.substr(0, size));
    EXPECT_NE(error_of([&] { image_file(dir / "cut.npz"); }), "") << size;
  }
}

TEST(ImageFiles, PicklesAndOtherFilesAreNone) {
  TempDir dir;
  for (int version = 2; version <= 5; ++version) {
    write_file(dir / "batch", std::string("\x80") + static_cast<char>(version) + "}.");
    EXPECT_EQ(error_of([&] { image_file(dir / "batch"); }),
              dir /
                  "batch: is a Python pickle, which weft does not read; fetch the same images as "
                  ".npz files");
  }
  write_file(dir / "text", "nothing of the kind");
  EXPECT_EQ(error_of([&] { image_file(dir / "text"); }),
            dir / "text: is no .npy or .npz file (19 bytes of something else)");
}

// One byte an image, which is its number.
ImageSplit numbered(int64_t count) {
  ImageSplit split;
  for (int64_t i = 0; i < count; ++i) {
    split.pixels.push_back(static_cast<uint8_t>(i));
    split.labels.push_back(static_cast<uint16_t>(1000 + i));
  }
  return split;
}

TEST(ImageSplits, TheLastOnes) {
  ImageSplit train = numbered(10);
  const ImageSplit valid = take_last(train, {1, 1, 1}, 3, "--valid");
  EXPECT_EQ(valid.pixels, (std::vector<uint8_t>{7, 8, 9}));
  EXPECT_EQ(valid.labels, (std::vector<uint16_t>{1007, 1008, 1009}));
  EXPECT_EQ(train.pixels, (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(train.labels.size(), 7u);
  EXPECT_TRUE(take_last(train, {1, 1, 1}, 0, "--valid").pixels.empty());
  EXPECT_CONTAINS(error_of([&] {
                    take_last(train, {1, 1, 1}, 7, "--valid");
                  }),
                  "--valid: cannot take 7 of 7 images and leave some to train on");
}

TEST(ImageSplits, ChosenOnesKeepTheirOrderAndTheirLabels) {
  ImageSplit train = numbered(100);
  const ImageSplit valid = take_chosen(train, {1, 1, 1}, 30, kSplitSeed, "--valid");
  EXPECT_TRUE(std::is_sorted(valid.pixels.begin(), valid.pixels.end()));
  EXPECT_TRUE(std::is_sorted(train.pixels.begin(), train.pixels.end()));
  std::set<int> all(valid.pixels.begin(), valid.pixels.end());
  EXPECT_EQ(all.size(), 30u);
  EXPECT_LT(valid.pixels.front(), 30) << "from the whole set, not from its end";
  for (int64_t i = 70; i < 100; ++i)
    EXPECT_TRUE(all.contains(static_cast<int>(image_at(kSplitSeed, i, 100))));
  all.insert(train.pixels.begin(), train.pixels.end());
  EXPECT_EQ(all.size(), 100u);
  for (const ImageSplit* split : {&static_cast<const ImageSplit&>(train), &valid})
    for (std::size_t i = 0; i < split->pixels.size(); ++i)
      EXPECT_EQ(split->labels[i], 1000 + split->pixels[i]);
  ImageSplit few = numbered(5);
  EXPECT_CONTAINS(error_of([&] {
                    take_chosen(few, {1, 1, 1}, 6, 1, "--test");
                  }),
                  "--test: cannot take 6 of 5");
}
}  // namespace
}  // namespace weft
