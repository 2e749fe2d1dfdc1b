// SPDX-License-Identifier: MIT
// prepare cifar10, imagenet and images on small sets in the layouts of the real ones: pixels,
// labels, splits and attributes; every unfit set is one error, writes nothing and leaves the
// earlier file.
#include "data/formats/archive.h"
#include "data/formats/image_files.h"
#include "data/formats/prepare.h"
#include "src/files/hdf5.h"
#include "tests/data/formats/raw_images.h"
#include "tests/temp_dir.h"
#include "train/program/png.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
namespace fs = std::filesystem;

constexpr unsigned kBatch = 5;  // images in an "official" file here: of 25, one validates

std::vector<uint16_t> split_labels(const std::string& path, const std::string& split) {
  const Hdf5File file = Hdf5File::open(path);
  if (!file.has("/labels/" + split)) return {};
  std::vector<uint16_t> labels(static_cast<std::size_t>(file.shape_of("/labels/" + split).at(0)));
  file.read("/labels/" + split, StoredType::u16, {static_cast<int64_t>(labels.size())},
            labels.data());
  return labels;
}

class PrepareCifar10Test : public testing::Test {
 protected:
  PrepareCifar10Test() {
    fs::create_directory(dir_ / "bin");
    for (unsigned i = 0; i < 5; ++i)
      write_file(str(dir_ / "bin/data_batch_", i + 1, ".bin"), cifar_records(i * kBatch, kBatch));
    write_file(dir_ / "bin/test_batch.bin", cifar_records(100, kBatch));
  }

  PrepareCifar10 options(const std::vector<std::string>& from,
                         const std::vector<std::string>& test = {}) const {
    PrepareCifar10 o;
    o.from = from;
    o.test = test;
    o.out = dir_ / "o.h5";
    o.batch = kBatch;
    return o;
  }

  std::string error(const std::vector<std::string>& from,
                    const std::vector<std::string>& test = {}) const {
    return error_of([&] { prepare_cifar10(options(from, test)); });
  }

  // The whole set: one image of 25, chosen by seed, validates.
  void expect_whole() const {
    const std::vector<uint8_t> all = expected_images(0, 25);
    const int64_t chosen = image_at(kSplitSeed, 24, 25);
    std::vector<uint8_t> train = all;
    train.erase(train.begin() + chosen * kCifarBytes, train.begin() + (chosen + 1) * kCifarBytes);
    EXPECT_EQ(split_pixels(dir_ / "o.h5", "train"), train);
    EXPECT_EQ(split_pixels(dir_ / "o.h5", "valid"),
              expected_images(static_cast<unsigned>(chosen), 1));
    EXPECT_EQ(split_pixels(dir_ / "o.h5", "test"), expected_images(100, 5));
    EXPECT_EQ(split_labels(dir_ / "o.h5", "valid"),
              std::vector<uint16_t>{static_cast<uint16_t>(chosen % 10)});
    EXPECT_EQ(split_labels(dir_ / "o.h5", "test"), (std::vector<uint16_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(split_labels(dir_ / "o.h5", "train").size(), 24u);
    EXPECT_TRUE(TokenDataset(dir_ / "o.h5", "train", 256).image() == (ImageShape{32, 32, 3}));
  }

  TempDir dir_;
};

TEST_F(PrepareCifar10Test, AllLayoutsMakeTheSameFile) {
  const std::string lines = prepare_cifar10(options({dir_ / "bin"}));
  EXPECT_CONTAINS(lines, "of 25 training images 1, chosen with the seed 11172018, validate");
  EXPECT_CONTAINS(lines, "o.h5: 30 images of 32 x 32 x 3 (train 24, valid 1, test 5)");
  expect_whole();
  const Hdf5File file = Hdf5File::open(dir_ / "o.h5");
  EXPECT_EQ(file.text_attribute("format"), "weft tokens");
  EXPECT_EQ(file.int_attribute("vocab"), 256);
  EXPECT_EQ(file.int_attribute("height"), 32);
  EXPECT_EQ(file.int_attribute("width"), 32);
  EXPECT_EQ(file.int_attribute("channels"), 3);
  EXPECT_CONTAINS(*file.text_attribute("description"), "seed 11172018");
  EXPECT_CONTAINS(*file.text_attribute("sources"), "data_batch_5.bin, test_batch.bin");
  fs::create_directory_symlink(dir_ / "bin", dir_ / "cifar-10-batches-bin");
  prepare_cifar10(options({dir_.path()}));
  expect_whole();
  std::vector<std::pair<std::string, std::string>> members = {
      {"cifar-10-batches-bin/readme.html", "<html>"}};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(dir_ / "bin")) {
    files.push_back(entry.path().string());
    members.emplace_back("cifar-10-batches-bin/" + entry.path().filename().string(),
                         read_file(files.back()));
  }
  std::sort(files.begin(), files.end());
  prepare_cifar10(options(files));  // by their names, test_batch.bin tests
  expect_whole();
  if (!has_archives()) return;
  write_file(dir_ / "c.tar.gz", stored_gzip(tar_of(members)));
  prepare_cifar10(options({dir_ / "c.tar.gz"}));
  expect_whole();
}

TEST_F(PrepareCifar10Test, OtherFilesAreSplitAtTheirEnd) {
  write_file(dir_ / "some.bin", cifar_records(0, 20));
  write_file(dir_ / "more.bin", cifar_records(20, 3));
  write_file(dir_ / "test.bin", cifar_records(50, 2));
  PrepareCifar10 o = options({dir_ / "some.bin", dir_ / "more.bin"}, {dir_ / "test.bin"});
  EXPECT_CONTAINS(error_of([&] { prepare_cifar10(o); }), "--valid: cannot take 512 of 23 images");
  o.valid = 4;
  EXPECT_CONTAINS(prepare_cifar10(o), "the last 4 of 23 training images validate");
  EXPECT_EQ(split_pixels(o.out, "train"), expected_images(0, 19));
  EXPECT_EQ(split_pixels(o.out, "valid"), expected_images(19, 4));
  EXPECT_EQ(split_pixels(o.out, "test"), expected_images(50, 2));
  o.test.clear();
  o.valid = 0;
  EXPECT_CONTAINS(prepare_cifar10(o), "(train 23, valid 0, test 0)");
  EXPECT_CONTAINS(error_of([&] { TokenDataset(o.out, "valid", 256); }),
                  o.out + ": the split valid is empty; name another split, or give prepare more");
}

TEST_F(PrepareCifar10Test, UnfitSetsWriteNothing) {
  prepare_cifar10(options({dir_ / "bin"}));
  const std::string before = read_file(dir_ / "o.h5");
  const std::string bin = dir_ / "bin", third = bin + "/data_batch_3.bin";
  const std::string good = read_file(third);
  EXPECT_CONTAINS(error({bin}, {third}), "--test goes with --from FILES");
  EXPECT_CONTAINS(error({dir_ / "none"}), "none: cannot be opened");
  EXPECT_CONTAINS(error({dir_.path()}), "has no files of CIFAR-10: expected data_batch_1.bin");
  EXPECT_CONTAINS(error({third}, {bin + "/none.bin"}), "none.bin: cannot be opened");
  EXPECT_CONTAINS(error({bin + "/test_batch.bin"}), "none to train on");
  write_file(third, good.substr(0, 4 * 3073));
  EXPECT_CONTAINS(
      error({bin}),
      "data_batch_3.bin: has 4 images, the official file of this name has 5: truncated?");
  write_file(third, good + good.substr(0, 3073));
  EXPECT_CONTAINS(error({bin}), "data_batch_3.bin: has 6 images");
  write_file(third, good.substr(0, 10000));
  EXPECT_CONTAINS(error({bin}), "data_batch_3.bin: has 10000 bytes, which is no whole number");
  write_file(third, "");
  EXPECT_CONTAINS(error({bin}), "data_batch_3.bin: is empty");
  write_file(third, read_file(bin + "/data_batch_4.bin"));
  EXPECT_CONTAINS(error({bin}), "data_batch_4.bin: is the same as " + third);
  fs::remove(third);
  EXPECT_EQ(error({bin}), bin + ": lacks data_batch_3.bin of CIFAR-10");
  const std::string py = dir_ / "cifar-10-batches-py", pickle = "\x80\2}.";
  const std::string is_pickle =
      ": is a Python pickle, which weft does not read; fetch cifar-10-binary.tar.gz, which prepare "
      "downloads "
      "without --from";
  fs::create_directory(py);
  write_file(py + "/data_batch_1", pickle);
  EXPECT_EQ(error({dir_.path()}), py + is_pickle);
  EXPECT_EQ(error({py}), py + is_pickle);
  EXPECT_EQ(error({py + "/data_batch_1"}), py + "/data_batch_1" + is_pickle);
  write_file(dir_ / "py.tar", tar_of({{"cifar-10-batches-py/data_batch_1", pickle}}));
  if (has_archives()) {
    EXPECT_EQ(error({dir_ / "py.tar"}), dir_ / "py.tar" + is_pickle);
  }
  write_file(dir_ / "cut.tar.gz",
             stored_gzip(tar_of({{"data_batch_1.bin", good}})).substr(0, 9000));
  EXPECT_CONTAINS(error({dir_ / "cut.tar.gz"}), "cut.tar.gz");
  EXPECT_EQ(read_file(dir_ / "o.h5"), before);
  EXPECT_FALSE(fs::exists(dir_ / "o.h5.tmp"));
}

TEST_F(PrepareCifar10Test, WithoutNetworkSaysTheWayOut) {
  PrepareCifar10 o = options({});
  o.url = "http://127.0.0.1:9/cifar-10-binary.tar.gz";
  testing::internal::CaptureStderr();
  const std::string text = error_of([&] { prepare_cifar10(o); });
  testing::internal::GetCapturedStderr();
  EXPECT_CONTAINS(text, "the folder it unpacks to, with --from");
  EXPECT_FALSE(fs::exists(o.out));
  EXPECT_FALSE(fs::exists(o.out + ".download"));
}

TEST(PrepareImagenet, ArraysInTheirOrderAndTheLastOnesValidate) {
  if (!has_archives()) GTEST_SKIP() << "no libarchive";
  TempDir dir;
  constexpr int64_t size = 64 * 64 * 3;
  write_file(dir / "1.npy", npy_planes(0, 3, size));
  write_file(dir / "2.npz", zip_of({{"data.npy", npy_pixels(3, 2, 64)},
                                    {"labels.npy", npy_header("|u1", {2}) + "ab"}}));
  write_file(dir / "v.npy", npy_pixels(40, 1, 64));
  PrepareImagenet o{
      .side = 64,
      .from = {dir / "1.npy", dir / "2.npz"},
      .valid_from = {dir / "v.npy"},
      .out = dir / "o.h5",
  };
  EXPECT_CONTAINS(error_of([&] { prepare_imagenet(o); }),
                  "--valid: say how many of the last training images");
  o.valid = 2;
  const std::string lines = prepare_imagenet(o);
  EXPECT_CONTAINS(lines, "1.npy: 3 training images, no labels");
  EXPECT_CONTAINS(lines, "2.npz: 2 training images\n");
  EXPECT_CONTAINS(lines, "o.h5: 6 images of 64 x 64 x 3 (train 3, valid 2, test 1)");
  EXPECT_EQ(split_pixels(o.out, "train"), expected_images(0, 3, size));
  EXPECT_EQ(split_pixels(o.out, "valid"), expected_images(3, 2, size));
  EXPECT_EQ(split_pixels(o.out, "test"), expected_images(40, 1, size));
  EXPECT_TRUE(split_labels(o.out, "valid").empty()) << "labels of a part are none";
  o.from = {dir / "2.npz"};
  o.valid = 1;
  prepare_imagenet(o);
  EXPECT_EQ(split_labels(o.out, "train"), std::vector<uint16_t>{'a'});
  EXPECT_EQ(split_labels(o.out, "valid"), std::vector<uint16_t>{'b'});
  const std::string before = read_file(o.out);
  o.side = 32;
  EXPECT_CONTAINS(error_of([&] { prepare_imagenet(o); }),
                  "2.npz: data.npy: has the shape (2, 64, 64, 3), expected");
  EXPECT_EQ(read_file(o.out), before);
}

TEST(PrepareImagenet, WholeSetsAreSplitByCustom) {
  EXPECT_EQ(imagenet_validation(64, 1281149), 50000);
  EXPECT_EQ(imagenet_validation(32, 1281167), 10000);
  EXPECT_EQ(imagenet_validation(64, 1281167), -1);
  EXPECT_EQ(imagenet_validation(32, 1281149), -1);
}

// A picture of one colour.
void write_flat(const std::string& path, int64_t width, int64_t height, Rgb colour) {
  Image image(width, height);
  std::fill(image.pixels.begin(), image.pixels.end(), colour);
  write_png(path, image);
}

// A grey file of 2 x 1 pixels, 5 and 9, stored without compression.
void write_grey(const std::string& path) {
  const auto big = [](uint32_t v) {
    const std::string little = little_endian(v, 4);
    return std::string(little.rbegin(), little.rend());
  };
  const auto chunk = [&](const std::string& text) {
    return big(static_cast<uint32_t>(text.size() - 4)) + text + big(crc32_of(text));
  };
  const std::string row("\0\5\x9", 3);
  uint32_t a = 1, b = 0;
  for (const char c : row) a += static_cast<uint8_t>(c), b += a;
  write_file(path, "\x89PNG\r\n\x1a\n" + chunk(std::string("IHDR\0\0\0\2\0\0\0\1\x8\0\0\0\0", 17)) +
                       chunk("IDAT" + std::string("\x78\x01\x01\x03\0\xfc\xff", 7) + row +
                             big(b << 16 | a)) +
                       chunk("IEND"));
}

TEST(PrepareImages, AFolderInTheOrderOfNames) {
  TempDir dir;
  fs::create_directory(dir / "in");
  for (int i = 0; i < 20; ++i)
    write_flat(str(dir / "in/", 10 + i, i % 2 ? ".png" : ".PNG"), 4, 3,
               {static_cast<uint8_t>(i), 7, 9});
  write_file(dir / "in/notes.txt", "x");
  const std::string lines = prepare_images({.folder = dir / "in", .out = dir / "o.h5"});
  EXPECT_CONTAINS(
      lines,
      "20 images of colour: 2 validate and 0 test, chosen with the seed 11172018; no labels");
  EXPECT_CONTAINS(lines, "1 files that are no .png skipped");
  EXPECT_CONTAINS(lines, "20 images of 3 x 4 x 3 (train 18, valid 2, test 0)");
  prepare_images({.folder = dir / "in/", .out = dir / "o.h5", .valid = 0, .test = 0});
  const auto pixels = split_pixels(dir / "o.h5", "train");
  ASSERT_EQ(pixels.size(), 20u * 36);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    ASSERT_EQ(pixels[i], i % 3 == 0 ? i / 36 : i % 3 == 1 ? 7 : 9) << i;
  EXPECT_EQ(Hdf5File::open(dir / "o.h5").text_attribute("sources"), "in");
}

TEST(PrepareImages, FoldersAreLabelsAndEverySplitHasItsOwn) {
  TempDir dir;
  for (const char* folder : {"in", "in/b", "in/a", "in/c"}) fs::create_directory(dir / folder);
  for (int i = 0; i < 30; ++i)
    write_flat(str(dir / "in/", "abc"[i / 10], "/", 10 + i, ".png"), 1, 1,
               {static_cast<uint8_t>(i), 0, 0});
  EXPECT_CONTAINS(
      prepare_images({.folder = dir / "in", .out = dir / "o.h5", .valid = 6, .test = 7}),
      "labels 0 a, 1 b, 2 c");
  std::vector<int> seen;
  for (const char* split : {"train", "valid", "test"}) {
    const auto pixels = split_pixels(dir / "o.h5", split);
    const auto labels = split_labels(dir / "o.h5", split);
    ASSERT_EQ(labels.size(), pixels.size() / 3);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      EXPECT_EQ(labels[i], pixels[3 * i] / 10);
      seen.push_back(pixels[3 * i]);
    }
  }
  std::sort(seen.begin(), seen.end());
  for (int i = 0; i < 30; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST(PrepareImages, GreyStaysGreyUntilThereIsColour) {
  TempDir dir;
  fs::create_directory(dir / "in");
  write_grey(dir / "in/a.png");
  write_grey(dir / "in/b.png");
  prepare_images({.folder = dir / "in", .out = dir / "o.h5", .valid = 0});
  EXPECT_TRUE(TokenDataset(dir / "o.h5", "train", 256).image() == (ImageShape{1, 2, 1}));
  EXPECT_EQ(split_pixels(dir / "o.h5", "train"), (std::vector<uint8_t>{5, 9, 5, 9}));
  write_flat(dir / "in/aa.png", 2, 1, {1, 2, 3});
  prepare_images({.folder = dir / "in", .out = dir / "o.h5", .valid = 0});
  EXPECT_EQ(split_pixels(dir / "o.h5", "train"),
            (std::vector<uint8_t>{5, 5, 5, 9, 9, 9, 1, 2, 3, 1, 2, 3, 5, 5, 5, 9, 9, 9}));
}

TEST(PrepareImages, UnfitFoldersWriteNothing) {
  TempDir dir;
  for (const char* folder : {"in", "in/sub", "empty"}) fs::create_directory(dir / folder);
  const auto error = [&](const std::string& folder, int64_t valid = 0) {
    return error_of(
        [&] { prepare_images({.folder = dir / folder, .out = dir / "o.h5", .valid = valid}); });
  };
  write_flat(dir / "in/a.png", 2, 2, {});
  EXPECT_CONTAINS(error("none"), "none: cannot be read as a folder: No such file or directory");
  EXPECT_CONTAINS(error("in/a.png"), "cannot be read as a folder");
  EXPECT_CONTAINS(error("empty"), "empty: has no .png files");
  EXPECT_CONTAINS(error("in"), "in: has images beside the folder ");
  fs::remove(dir / "in/sub");
  EXPECT_CONTAINS(error("in", 1), "--valid: cannot take 1 of 1 images");
  write_flat(dir / "in/b.png", 2, 3, {});
  EXPECT_CONTAINS(error("in"),
                  "b.png: has 3 x 2 pixels, " + (dir / "in/a.png") + " has 2 x 2; all images must");
  write_file(dir / "in/b.png", read_file(dir / "in/a.png").substr(0, 60));
  EXPECT_CONTAINS(error("in"), "b.png: is truncated or damaged");
  write_file(dir / "in/b.png", "GIF89a");
  EXPECT_CONTAINS(error("in"), "b.png: is not a PNG file");
  for (const char* folder : {"deep", "deep/x", "deep/x/y"}) fs::create_directory(dir / folder);
  EXPECT_CONTAINS(error("deep"), "y: folders for labels hold images alone");
  EXPECT_FALSE(fs::exists(dir / "o.h5"));
  EXPECT_FALSE(fs::exists(dir / "o.h5.tmp"));
}

TEST(PrepareProgram, TheImageCommandsHaveHelpAndOneLineErrors) {
  TempDir dir;
  for (const std::string& wrong :
       {std::string("cifar10 --from /none"), std::string("imagenet64 --from /none --out o.h5"),
        std::string("imagenet32 --out o.h5"), std::string("images /none --out o.h5"),
        std::string("images"), std::string("cifar10 --valid -3")}) {
    const std::string run =
        std::string(WEFT_TEST_BIN) + "/prepare " + wrong + " >" + (dir / "said") + " 2>&1";
    EXPECT_EQ(WEXITSTATUS(std::system(run.c_str())), 1) << wrong;
    const std::string said = read_file(dir / "said");
    EXPECT_TRUE(said.starts_with("error: ")) << wrong << ": " << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << wrong << ": " << said;
  }
  for (const char* command : {"cifar10", "imagenet64", "imagenet32", "images"}) {
    const std::string run =
        std::string(WEFT_TEST_BIN) + "/prepare " + command + " --help >" + (dir / "said");
    EXPECT_EQ(std::system(run.c_str()), 0);
    EXPECT_CONTAINS(read_file(dir / "said"), "Example");
  }
}
}  // namespace
}  // namespace weft
