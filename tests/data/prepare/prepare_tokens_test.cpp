// SPDX-License-Identifier: MIT
// prepare tokens: every type of number that it takes, and what it refuses.
#include "data/dataset.h"
#include "data/prepare/prepare.h"
#include "src/files/hdf5.h"
#include "src/files/npy.h"
#include "tests/temp_dir.h"

#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
namespace {
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class PrepareTokensTest : public testing::Test {
 protected:
  template <class T>
  void npy(const char* type, const std::vector<T>& values) {
    write_file(o_.file, npy_header(type, {std::ssize(values)}) + bytes_of(values));
  }

  std::vector<int32_t> prepared() {
    prepare_tokens(o_);
    const TokenDataset data(o_.out, "train", o_.vocab);
    std::vector<int32_t> tokens(static_cast<std::size_t>(data.size()));
    data.read(0, tokens);
    return tokens;
  }

  std::string error() {
    return error_of([&] { prepare_tokens(o_); });
  }

  TempDir dir_;
  PrepareTokens o_{
      .file = dir_ / "t.bin",
      .out = dir_ / "o.h5",
      .vocab = 50257,
      .split = {1, 0, 0},
  };
};

TEST_F(PrepareTokensTest, TakesBareNumbersAndArraysOfAnyWidth) {
  using Tokens = std::vector<int32_t>;
  const Tokens want{0, 50256, 7, 300};
  const auto type = [&] { return Hdf5File::open(o_.out).type_of("/train"); };
  write_file(o_.file, bytes_of(std::vector<uint16_t>(want.begin(), want.end())));
  EXPECT_EQ(prepared(), want);
  EXPECT_EQ(type(), StoredType::u16);
  write_file(o_.file, bytes_of(std::vector<uint32_t>(want.begin(), want.end())));
  o_.dtype = "u16";
  EXPECT_EQ(prepared(), (Tokens{0, 0, 50256, 0, 7, 0, 300, 0}));  // the type that a person said
  o_.dtype = "u32";
  EXPECT_EQ(prepared(), want);
  EXPECT_EQ(type(), StoredType::u16);
  o_.dtype = "", o_.vocab = 100'000;
  EXPECT_EQ(prepared(), want);
  EXPECT_EQ(type(), StoredType::u32);
  o_.vocab = 50257;
  npy("<u2", std::vector<uint16_t>(want.begin(), want.end()));
  EXPECT_EQ(prepared(), want);
  npy("<u4", std::vector<uint32_t>(want.begin(), want.end()));
  EXPECT_EQ(prepared(), want);
  npy("<i4", want);
  EXPECT_EQ(prepared(), want);
  npy("<i8", std::vector<int64_t>(want.begin(), want.end()));
  EXPECT_EQ(prepared(), want);
  o_.vocab = 10;
  npy("|u1", std::vector<uint8_t>{9, 0, 3});
  EXPECT_EQ(prepared(), (Tokens{9, 0, 3}));
  EXPECT_EQ(type(), StoredType::u8);
}

// Bare numbers of another type than the vocabulary suggests.
TEST_F(PrepareTokensTest, ZerosBetweenAllNumbersAreAskedAbout) {
  const std::vector<int32_t> want{9, 50256, 7, 300};
  write_file(o_.file, bytes_of(want));
  EXPECT_CONTAINS(
      error(),
      "t.bin: read as numbers of 2 bytes, all but every second one are 0, as in a file "
      "of numbers of 4 bytes; for these say --dtype u32; if they are right as they are, "
      "say --dtype u16");
  write_file(o_.file, bytes_of(std::vector<int64_t>(want.begin(), want.end())));
  EXPECT_CONTAINS(error(),
                  "numbers of 2 bytes, all but every fourth one are 0, as in a file of "
                  "numbers of 8 bytes; save these by numpy.save, as .npy");
  o_.vocab = 100'000;
  EXPECT_CONTAINS(error(),
                  "numbers of 4 bytes, all but every second one are 0, as in a file of "
                  "numbers of 8 bytes; save these by numpy.save, as .npy; if they are right "
                  "as they are, say --dtype u32");
  EXPECT_FALSE(std::filesystem::exists(o_.out));
  o_.vocab = 50257;
  for (const std::vector<uint16_t>& right :
       {std::vector<uint16_t>{5, 0, 7, 0, 0, 1}, {0, 5}, {5, 0, 7}}) {
    write_file(o_.file, bytes_of(right));
    EXPECT_EQ(prepared(), std::vector<int32_t>(right.begin(), right.end()));
  }
}

TEST_F(PrepareTokensTest, ErrorsLeaveNothing) {
  EXPECT_CONTAINS(error(), "t.bin: cannot be opened");
  write_file(o_.file, "");
  EXPECT_CONTAINS(error(), "t.bin: is empty");
  write_file(o_.file, "abc");
  EXPECT_CONTAINS(
      error(), "has 3 bytes, no whole number of tokens of 2 bytes; name their type with --dtype");
  write_file(o_.file, "PK\3\4 and more.");
  EXPECT_CONTAINS(error(),
                  "t.bin: is a zip archive, such as numpy.savez makes, expected one array");
  write_file(o_.file, bytes_of(std::vector<uint16_t>{1, 2, 50257}));
  EXPECT_CONTAINS(error(), "token 2 is 50257, outside the vocabulary of 50257");
  npy("<i4", std::vector<int32_t>{5, -1});
  EXPECT_CONTAINS(error(), "token 1 is -1, outside the vocabulary of 50257");
  write_file(o_.file, npy_header("<u2", {1, 2}) + "abcd");
  EXPECT_CONTAINS(error(), "has 2 axes, expected one; in numpy: a.reshape(-1)");
  o_.dtype = "u16";
  EXPECT_CONTAINS(error(), "--dtype: " + o_.file + " is a .npy file, which says its type");
  EXPECT_FALSE(std::filesystem::exists(o_.out));
}

TEST_F(PrepareTokensTest, BytesOfATokenAreKnownWhereTheyAreGiven) {
  write_file(o_.file, bytes_of(std::vector<uint16_t>(20, 3)));
  const auto bytes = [&](int64_t vocab) {
    return TokenDataset(o_.out, "train", vocab).bytes_per_token();
  };
  o_.split = {0.5, 0.25, 0.25};
  prepare_tokens(o_);
  EXPECT_EQ(bytes(50257), 0);
  EXPECT_EQ(bytes(4), 0);  // numbers below 256 that are no bytes
  o_.bytes = 70;
  prepare_tokens(o_);
  EXPECT_EQ(bytes(50257), 3.5);
  write_token_file(o_.out, std::vector<uint8_t>(20, 3), 256, {1, 0, 0}, "bytes");
  EXPECT_EQ(bytes(256), 1);
}
}  // namespace
}  // namespace weft
