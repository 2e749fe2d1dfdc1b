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
  EXPECT_CONTAINS(error({0.01, 0.5, 0.49}), "nothing is left for train of 10 tokens");
  EXPECT_CONTAINS(error_of([&] {
                    write_token_file(dir / "a.h5", counting(20, 5), 4, {1, 0, 0}, "");
                  }),
                  "token 4 is 4, outside the vocabulary of 4");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.h5"));
  EXPECT_EQ(error({1, 0, 0}), "");
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "test", 4); }),
                  "a.h5: the split test is empty");
}

TEST(TokenFile, AShareOfNothingForTrainIsAnEmptySplit) {
  TempDir dir;
  EXPECT_CONTAINS(write_token_file(dir / "a.h5", counting(10, 4), 4, {0, 0, 1}, ""),
                  "(train 0, valid 0, test 10)");
  EXPECT_EQ(TokenDataset(dir / "a.h5", "test", 4).size(), 10);
  EXPECT_EQ(TokenDataset(dir / "a.h5", "test", 4).bytes_per_token(), 1);
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "train", 4); }),
                  "a.h5: the split train is empty");
  EXPECT_CONTAINS(error_of([&] {
                    write_token_file(dir / "b.h5", counting(0, 4), 4, {0, 0, 1}, "");
                  }),
                  "nothing is left for train of 0 tokens");
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
  EXPECT_CONTAINS(
      error(dir / "text.h5"),
      "is not an HDF5 file (5 bytes of something else); of a text, prepare text makes a "
      "data file");
  write_file(dir / "bytes.h5", std::string(40, '\0'));
  EXPECT_EQ(error(dir / "bytes.h5"),
            dir / "bytes.h5: is not an HDF5 file (40 bytes of something else)");
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
  Hdf5File newer = Hdf5File::create(dir / "newer.h5");
  newer.write("/train", StoredType::u8, {24}, numbers.data());
  newer.set_attribute("version", 2);
  newer.commit();
  EXPECT_CONTAINS(error(dir / "newer.h5"),
                  "newer.h5: is of version 2 of data files, and this program reads 1");
}

// As an empty numpy array is written, which is one of real numbers.
TEST(TokenDataset, SplitsMayBeMissingOrEmptyWhereThatIsSaid) {
  TempDir dir;
  const std::vector<uint8_t> tokens(6, 1);
  Hdf5File made = Hdf5File::create(dir / "a.h5");
  made.write("/train", StoredType::u8, {6}, tokens.data());
  made.write("/valid", StoredType::f64, {0}, nullptr);
  made.commit();
  const auto size = [&](const char* split) {
    return TokenDataset(dir / "a.h5", split, 256, TokenDataset::WithoutTokens::taken).size();
  };
  EXPECT_EQ(size("train"), 6);
  EXPECT_EQ(size("valid"), 0);
  EXPECT_EQ(size("test"), 0);
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "test", 256); }), "has no split test");
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "valid", 256); }), "/valid is float64");
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

TEST(FindData, AsGivenOrBesideTheConfig) {
  TempDir dir;
  const std::string option = "--set data.path=F.h5";
  write_file(dir / "beside.h5", "x");
  EXPECT_EQ(find_data(dir / "beside.h5", "any.yaml", option), dir / "beside.h5");
  EXPECT_EQ(find_data("beside.h5", dir / "c.yaml", option), dir / "beside.h5");
  EXPECT_EQ(error_of([&] { find_data("none.h5", dir / "c.yaml", option); }),
            "no data file none.h5 (nor " + (dir / "none.h5") +
                "); make it with prepare, or name another with --set "
                "data.path=F.h5");
  EXPECT_CONTAINS(error_of([] { find_data("", "c.yaml", "--data F.h5"); }), "data.path is not set");
}
}  // namespace
}  // namespace weft
