// SPDX-License-Identifier: MIT
// Token files and the order of training: what is written reads back, windows are a pure and uniform
// function of (seed, step, index), and every unfit file is refused with its reason.
#include "data/batch_source.h"
#include "src/files/hdf5.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
std::vector<uint16_t> counting(std::size_t n, unsigned vocab) {
  std::vector<uint16_t> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<uint16_t>(i % vocab);
  return tokens;
}

std::vector<int32_t> all_of(const TokenDataset& data) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(data.size()));
  data.read(0, tokens);
  return tokens;
}

TEST(TokenFile, RoundTripOfBytesAndOfLargerVocabularies) {
  TempDir dir;
  for (const int64_t vocab : {2, 256, 257, 65536}) {
    const auto tokens = counting(1000, static_cast<unsigned>(vocab));
    const std::string line = write_token_file(dir / "a.h5", tokens, vocab, {0.8, 0.15, 0.05},
                                              "what it is", {"x.txt", "y"});
    EXPECT_CONTAINS(line, str(dir / "a.h5", ": 1000 tokens, vocabulary ", vocab,
                              " (train 800, valid 150, test 50)"));
    const Hdf5File file = Hdf5File::open(dir / "a.h5");
    EXPECT_EQ(file.type_of("/train"), vocab <= 256 ? StoredType::u8 : StoredType::u16);
    EXPECT_EQ(file.text_attribute("format"), "weft tokens");
    EXPECT_EQ(file.int_attribute("vocab"), vocab);
    EXPECT_EQ(file.text_attribute("description"), "what it is");
    EXPECT_EQ(file.text_attribute("sources"), "x.txt, y");
    std::vector<int32_t> joined;
    for (const char* split : {"train", "valid", "test"}) {
      const auto part = all_of(TokenDataset(dir / "a.h5", split, vocab));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, std::vector<int32_t>(tokens.begin(), tokens.end()));
  }
}

TEST(TokenFile, ErrorsOfSplits) {
  TempDir dir;
  const auto tokens = counting(10, 4);
  const auto error = [&](const std::vector<double>& split) {
    return error_of([&] { write_token_file(dir / "a.h5", tokens, 4, split, ""); });
  };
  EXPECT_CONTAINS(
      error({0.9, 0.2, 0.05}),
      "split 0.9,0.2,0.05: expected three shares for train, valid and test that sum to 1");
  EXPECT_CONTAINS(error({0.9, 0.1}), "split 0.9,0.1: expected three");
  EXPECT_CONTAINS(error({1.5, -0.5, 0}), "expected three shares");
  EXPECT_CONTAINS(error({0, 0.5, 0.5}), "nothing is left for train");
  EXPECT_CONTAINS(error_of([&] {
                    write_token_file(dir / "a.h5", counting(20, 5), 4, {1, 0, 0}, "");
                  }),
                  "token 4 is 4, outside the vocabulary of 4");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.h5"));
  EXPECT_EQ(error({1, 0, 0}), "");
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "test", 4); }),
                  "a.h5: the split test is empty");
}

TEST(TokenDataset, ErrorsOfFiles) {
  TempDir dir;
  const auto error = [&](const std::string& path, const std::string& split = "train",
                         int64_t vocab = 256) {
    return error_of([&] { TokenDataset(path, split, vocab); });
  };
  write_token_file(dir / "a.h5", counting(1000, 200), 256, {0.5, 0.25, 0.25}, "");
  EXPECT_EQ(error(dir / "a.h5"), "");
  EXPECT_EQ(
      error(dir / "a.h5", "tset"),
      dir / "a.h5: has no split tset; it has /test, /train, /valid. prepare makes data files");
  EXPECT_EQ(error(dir / "a.h5", "valid", 128),
            dir / "a.h5: token 28 of valid is 128, outside the vocabulary of 128 (model.vocab)");
  EXPECT_CONTAINS(error(dir / "none.h5"), "none.h5: cannot be opened");
  write_file(dir / "text.h5", "words");
  EXPECT_CONTAINS(error(dir / "text.h5"), "is not an HDF5 file");
  write_file(dir / "cut.h5", read_file(dir / "a.h5").substr(0, 1000));
  EXPECT_CONTAINS(error(dir / "cut.h5"), "is truncated");
  const std::vector<float> numbers(6);
  Hdf5File foreign = Hdf5File::create(dir / "foreign.h5");
  foreign.write("/train", StoredType::f32, {6}, numbers.data());
  foreign.write("/valid", StoredType::u8, {2, 3}, numbers.data());
  foreign.write("/params/x", StoredType::f32, {6}, numbers.data());
  foreign.commit();
  EXPECT_CONTAINS(error(dir / "foreign.h5"),
                  "/train is float32 with 1 axes, expected uint8, uint16 or uint32 tokens");
  EXPECT_CONTAINS(error(dir / "foreign.h5", "valid"), "/valid is uint8 with 2 axes");
  EXPECT_CONTAINS(error(dir / "foreign.h5", "test"), "is a checkpoint, expected a data file");
}

TEST(TokenDataset, DamagedFilesNeverCrash) {
  TempDir dir;
  write_token_file(dir / "a.h5", counting(300, 200), 256, {0.5, 0.25, 0.25}, "");
  const std::string whole = read_file(dir / "a.h5");
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole.substr(0, round % 3 == 0 ? random() % whole.size() : whole.size());
    for (int k = 0; k < 3 && !bytes.empty(); ++k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    write_file(dir / "b.h5", bytes);
    error_of([&] { TokenDataset(dir / "b.h5", "train", 256); });
  }
}

TEST(TokenDataset, ReadsWindows) {
  TempDir dir;
  write_token_file(dir / "a.h5", counting(100, 200), 256, {1, 0, 0}, "");
  const TokenDataset data(dir / "a.h5", "train", 256);
  std::vector<int32_t> out(3);
  data.read(97, out);
  EXPECT_EQ(out, (std::vector<int32_t>{97, 98, 99}));
  EXPECT_CONTAINS(error_of([&] { data.read(98, out); }), "tokens 98 to 100 of 100");
  EXPECT_CONTAINS(error_of([&] { data.read(-1, out); }), "tokens -1 to 1 of 100");
}

// Tokens that count tell where a window starts.
class BatcherTest : public testing::Test {
 protected:
  BatcherTest() { write_token_file(dir_ / "a.h5", counting(1000, 1000), 1000, {1, 0, 0}, ""); }

  std::vector<int32_t> windows(uint64_t seed, int64_t step, int64_t first, int64_t count,
                               int64_t context) const {
    std::vector<int32_t> out(static_cast<std::size_t>(count * context));
    Batcher(data(), seed).read(step, first, count, context, out);
    return out;
  }

  const TokenDataset& data() const {
    static thread_local std::unique_ptr<TokenDataset> data;
    data = std::make_unique<TokenDataset>(dir_ / "a.h5", "train", 1000);
    return *data;
  }

  TempDir dir_;
};

TEST_F(BatcherTest, IsAPureFunctionOfSeedStepAndIndex) {
  const auto whole = windows(7, 3, 0, 4, 50);
  auto halves = windows(7, 3, 0, 2, 50);
  const auto second = windows(7, 3, 2, 2, 50);
  halves.insert(halves.end(), second.begin(), second.end());
  EXPECT_EQ(whole, halves);
  EXPECT_NE(whole, windows(8, 3, 0, 4, 50));
  EXPECT_NE(whole, windows(7, 4, 0, 4, 50));
  for (std::size_t w = 0; w < 4; ++w)
    for (std::size_t i = 1; i < 50; ++i)
      EXPECT_EQ(whole[w * 50 + i], whole[w * 50] + static_cast<int>(i));
}

TEST_F(BatcherTest, StartsAreUniformAndReachBothEnds) {
  const TokenDataset& tokens = data();
  const Batcher batcher(tokens, 1);
  std::vector<int> seen(11);  // 11 places for a window of 990
  std::vector<int32_t> out(990);
  constexpr int kDraws = 11000;
  for (int step = 0; step < kDraws; ++step) {
    batcher.read(step, step % 3, 1, 990, out);
    ++seen[static_cast<std::size_t>(out[0])];
  }
  double chi_square = 0;
  for (const int n : seen) chi_square += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 29.6);  // 10 degrees of freedom: exceeded once in 1000 seeds
}

TEST_F(BatcherTest, OffsetsAreWholeUnitsInsideTheFullContext) {
  const TokenDataset tokens = data();
  const Batcher batcher(tokens, 1);
  std::vector<int32_t> offsets(4000), again(2);
  batcher.read_offsets(3, 0, 24, 64, 8, offsets);
  std::vector<int> seen(64);
  for (const int32_t o : offsets) {
    ASSERT_TRUE(o >= 0 && o + 24 <= 64 && o % 8 == 0) << o;
    ++seen[static_cast<std::size_t>(o)];
  }
  for (int o = 0; o <= 40; o += 8)
    EXPECT_NEAR(seen[static_cast<std::size_t>(o)], 4000.0 / 6, 100) << o;
  batcher.read_offsets(3, 5, 24, 64, 8, again);
  EXPECT_EQ(again, std::vector<int32_t>(offsets.begin() + 5, offsets.begin() + 7))
      << "by window, not by call";
  batcher.read_offsets(3, 0, 64, 64, 8, again);
  EXPECT_EQ(again, std::vector<int32_t>(2, 0)) << "the whole context lies at 0";
}

TEST_F(BatcherTest, AWindowMayBeTheWholeSplitAndNoMore) {
  EXPECT_EQ(windows(1, 0, 0, 1, 1000)[0], 0);
  EXPECT_CONTAINS(
      error_of([&] { windows(1, 0, 0, 1, 1001); }),
      "a.h5: the split train has 1000 tokens, fewer than a window of model.context 1001");
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

TEST(TokenDataset, ImagesOfTwoByteTokens) {
  TempDir dir;
  const std::vector<uint16_t> tokens = {1, 2, 300, 65535};
  Hdf5File file = Hdf5File::create(dir / "a.h5");
  file.write("/train", StoredType::u16, {2, 1, 2, 1}, tokens.data());
  file.commit();
  const TokenDataset data(dir / "a.h5", "train", 65536);
  EXPECT_EQ(data.images(), 2);
  EXPECT_EQ(all_of(data), (std::vector<int32_t>{1, 2, 300, 65535}));
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "train", 256); }),
                  "token 2 of train is 300");
}

// A small file whose array promises `dims`, whose space is not taken up.
void write_promise(const std::string& path, const std::vector<hsize_t>& dims) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
  const hid_t set =
      H5Dcreate2(file, "/train", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(set, 0);
  H5Dclose(set);
  H5Sclose(space);
  H5Fclose(file);
}

TEST(TokenDataset, PromisesThatAFileCannotKeepTakeNoMemory) {
  TempDir dir;
  const auto error = [&](const std::vector<hsize_t>& dims) {
    write_promise(dir / "a.h5", dims);
    return error_of([&] { TokenDataset(dir / "a.h5", "train", 256); });
  };
  for (const std::vector<hsize_t>& dims :
       {std::vector<hsize_t>{hsize_t{1} << 40},
        {hsize_t{1} << 40, 32, 32, 3},
        {hsize_t{1} << 31, hsize_t{1} << 31, 1, 1},
        {3, hsize_t{1} << 20, hsize_t{1} << 20, hsize_t{1} << 20}})
    EXPECT_CONTAINS(error(dims), "/train promises more tokens than a file of");
  for (const std::vector<hsize_t>& dims :
       {std::vector<hsize_t>{2, 3}, {2, 3, 3}, {1, 2, 2, 3, 1}, {}})
    EXPECT_CONTAINS(error(dims), str("/train is uint8 with ", dims.size(), " axes"));
  for (const std::vector<hsize_t>& dims :
       {std::vector<hsize_t>{0, 32, 32, 3}, {2, 0, 32, 3}, {0}, {2, 32, 32, 0}})
    EXPECT_CONTAINS(error(dims), "the split train is empty");
}

TEST(TokenDataset, DamagedImageFilesNeverCrash) {
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

TEST(FindData, AsGivenOrBesideTheConfig) {
  TempDir dir;
  write_file(dir / "beside.h5", "x");
  EXPECT_EQ(find_data(dir / "beside.h5", "any.yaml"), dir / "beside.h5");
  EXPECT_EQ(find_data("beside.h5", dir / "c.yaml"), dir / "beside.h5");
  EXPECT_EQ(error_of([&] { find_data("none.h5", dir / "c.yaml"); }),
            "no data file none.h5 (nor " + (dir / "none.h5") +
                "); make it with prepare, or name another with --set "
                "data.path=F.h5");
  EXPECT_CONTAINS(error_of([] { find_data("", "c.yaml"); }), "data.path is not set");
}
}  // namespace
}  // namespace weft
