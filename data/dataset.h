// SPDX-License-Identifier: MIT
// Data: an HDF5 file with the token arrays `train`, `valid` and `test` (uint8, uint16 or uint32).
// An array of one axis is a stream (text, audio). One of (items, rows, columns, channels) holds
// images, whose tokens run with channels fastest.
#pragma once

#include "src/files/npy.h"
#include "src/files/stored_bytes.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {
inline constexpr int64_t kMostVocab = 1 << 20;

// Rows, columns, channels of an image.
struct ImageShape {
  int64_t height = 0, width = 0, channels = 0;  // all 0: there is none

  int64_t tokens() const { return height * width * channels; }

  std::string text() const;  // "32 x 32 x 3"

  explicit operator bool() const { return tokens() > 0; }

  bool operator==(const ImageShape&) const = default;
};

// One split, random access. Tokens stay in the file: memory does not grow with it.
class TokenDataset {
 public:
  enum class WithoutTokens : uint8_t { refused, taken };
  // Throws Error for a missing, foreign or truncated file, for tokens >= vocab, and for a missing
  // or empty split unless that is `taken`: then size() is 0. A large file is searched for such
  // tokens only once (check_once).
  TokenDataset(const std::string& path, const std::string& split, int64_t vocab,
               WithoutTokens = WithoutTokens::refused);
  // Uniform random tokens, for timing.
  static TokenDataset random(int64_t size, int64_t vocab, uint64_t seed, ImageShape = {});

  int64_t size() const { return size_; }

  // Of each image; a stream has none.
  const ImageShape& image() const { return image_; }

  int64_t images() const { return image_ ? size() / image_.tokens() : 0; }

  // Tokens first .. first + out.size() - 1. Throws Error for tokens >= vocab: the file has changed.
  void read(int64_t first, std::span<int32_t> out) const;

  // Announces a read, so that the system brings the tokens to memory meanwhile.
  void expect(int64_t first, int64_t count) const { stored_.expect(first * item_, count * item_); }

  // Bytes of text in a token, mean of the file; 0: not known.
  double bytes_per_token() const { return bytes_per_token_; }

  const std::string& path() const { return path_; }

  const std::string& split() const { return split_; }

  bool stored() const { return stored_in_file_; }  // false: random()

 private:
  TokenDataset() = default;
  std::string path_, split_;
  ImageShape image_;
  bool stored_in_file_ = true;
  int64_t size_ = 0, vocab_ = 0, item_ = 1;  // item_: bytes of a token as it is stored
  double bytes_per_token_ = 0;
  StoredBytes stored_;
};

// Keeps the random numbers that order the data apart from dropout's under the same seed.
inline constexpr uint64_t kOrderKey = 0x6f72646572;

// Tokens of any type of whole numbers: an array, or a vector of unsigned ones (of char: bytes).
struct TokenArray : NpyArray {
  TokenArray(NpyArray array)
      : NpyArray(std::move(array)) {}

  template <class T>
  TokenArray(const std::vector<T>& v)
      : NpyArray{'u',
                 sizeof(T),
                 {std::ssize(v)},
                 {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)}} {}
};

// Writes a data file of a stream (data/README.md), in a few MiB of memory: `tokens` may be a mapped
// file. `split`: the shares of train, valid and test, with sum 1; a share of 0 makes an empty
// split. `attributes`: further numbers of the file. Returns a line for people.
std::string write_token_file(const std::string& path, const TokenArray& tokens, int64_t vocab,
                             const std::vector<double>& split, const std::string& description,
                             const std::vector<std::string>& sources = {},
                             const std::vector<std::pair<std::string, int64_t>>& attributes = {});

// The path of the data file that a config names: as given, or in the folder of the config. An Error
// says which option of the program names another, for example "--set data.path=F.h5".
std::string find_data(const std::string& path, const std::string& config_source,
                      const std::string& option);
}  // namespace weft
