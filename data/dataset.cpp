// SPDX-License-Identifier: MIT
#include "data/dataset.h"

#include "data/data_file.h"
#include "kernels/philox.h"
#include "src/config/names.h"
#include "src/files/hdf5.h"
#include "src/files/stored_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace weft {
namespace {
[[noreturn]] void no_split(const Hdf5File& file, const std::string& split) {
  if (file.has("/params"))
    fail(file.path(), ": is a checkpoint, expected a data file made by prepare");
  auto there = file.list("/");
  if (there.size() > 8) there.resize(8), there.push_back("...");
  fail(file.path(), ": has no split ", split, "; ",
       there.empty() ? "it has no arrays at all" : "it has " + joined(there),
       ". prepare makes data files");
}

// Whether a file begins with text: no control characters but white space.
bool is_text(const std::string& path) {
  std::string beginning(4096, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(beginning.data(), std::ssize(beginning));
  beginning.resize(static_cast<std::size_t>(in.gcount()));
  return !beginning.empty() && std::ranges::all_of(beginning, [](char c) {
    return static_cast<unsigned char>(c) >= ' ' || (c >= '\t' && c <= '\r');
  });
}

Hdf5File open_data(const std::string& path) {
  try {
    return Hdf5File::open(path);
  } catch (const Error& e) {
    if (!is_text(path)) throw;
    fail(e.what(), "; of a text, prepare text makes a data file");
  }
}

// How many tokens an array has. The sizes that a file states must be possible before memory is
// taken: compression (of files from other tools) makes nothing smaller than a thousandth.
int64_t tokens_of(const Hdf5File& file, const std::string& name,
                  const std::vector<int64_t>& shape) {
  const auto most = static_cast<int64_t>(std::filesystem::file_size(file.path())) * 2048;
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  int64_t size = 1;
  for (const int64_t axis : shape) {
    if (axis < 0 || axis > most / size)
      fail(file.path(), ": ", name, " promises more tokens than a file of ", most / 2048,
           " bytes can hold; it is damaged: copy or make it again");
    size *= axis;
  }
  return size;
}

constexpr int64_t kVersion = 1;

void check_version(const Hdf5File& file) {
  if (const auto version = file.int_attribute("version"); version && *version > kVersion)
    fail(file.path(), ": is of version ", *version, " of data files, and this program reads ",
         kVersion, "; update the program, or make the file again with its prepare");
}

void check_split(const std::vector<double>& split) {
  const std::string expected =
      "expected three shares for train, valid and test that sum to 1, such as 0.9,0.05,0.05";
  const bool good =
      split.size() == 3 && std::ranges::all_of(split, [](double s) { return s >= 0 && s <= 1; });
  if (!good || std::abs(std::accumulate(split.begin(), split.end(), 0.0) - 1) > 1e-9)
    fail("split ", joined(split, ","), ": ", expected);
}

// A line on splits that got nothing of their share; "": there are none.
std::string warning_of_empty(const std::vector<double>& split, int64_t size, int64_t valid,
                             int64_t test) {
  std::vector<std::string> empty;
  if (split[1] > 0 && valid == 0) empty.emplace_back("valid");
  if (split[2] > 0 && test == 0) empty.emplace_back("test");
  if (empty.empty()) return "";
  return str("\nwarning: ", joined(empty, " and "), empty.size() > 1 ? " are" : " is",
             " empty: ", size, " tokens are too few for --split ", joined(split, ","),
             "; training evaluates nothing without valid; give more data or other shares");
}

// Writes tokens first .. as unsigned numbers of `item` bytes.
FillBytes fill_with(const NpyArray& tokens, int64_t first, int64_t item, int64_t vocab) {
  return [&tokens, first, item, vocab](int64_t at, std::span<char> bytes) {
    for (int64_t i = first + at / item, to = 0; to < std::ssize(bytes); ++i, to += item) {
      const int64_t token = tokens.value(i);
      if (token < 0 || token >= vocab)
        fail("token ", i, " is ", token, ", outside the vocabulary of ", vocab);
      for (int64_t b = 0; b < item; ++b) bytes[to + b] = static_cast<char>(token >> 8 * b);
    }
  };
}
}  // namespace

std::string ImageShape::text() const { return str(height, " x ", width, " x ", channels); }

TokenDataset::TokenDataset(const std::string& path, const std::string& split, int64_t vocab,
                           WithoutTokens without)
    : path_(path),
      split_(split),
      vocab_(vocab),
      bytes_per_token_(vocab <= 256 ? 1 : 0) {
  const Hdf5File file = open_data(path);
  check_version(file);
  const std::string name = "/" + split;
  const bool taken = without == WithoutTokens::taken;
  if (taken && !file.has(name) && file.has("/train")) return;
  if (split.empty() || !file.has(name)) no_split(file, split);
  const auto shape = file.shape_of(name);
  if (taken && std::ranges::find(shape, 0) != shape.end()) return;
  const StoredType type = file.type_of(name);
  if ((shape.size() != 1 && shape.size() != 4) || type > StoredType::u32)
    fail(path, ": ", name, " is ", name_of(type), " with ", shape.size(),
         " axes, expected uint8, uint16 or uint32 tokens: one axis, or images ",
         "(count, height, width, channels)");
  size_ = tokens_of(file, name, shape);
  if (size_ == 0)
    fail(path, ": the split ", split,
         " is empty; name another split, or give prepare more data or other shares (--split)");
  if (shape.size() == 4) image_ = {shape[1], shape[2], shape[3]};
  item_ = type == StoredType::u8 ? 1 : type == StoredType::u16 ? 2 : 4;
  if (const auto bytes = file.int_attribute("bytes")) {
    int64_t tokens = 0;
    for (const char* part : {"/train", "/valid", "/test"})
      if (file.has(part)) tokens += tokens_of(file, part, file.shape_of(part));
    bytes_per_token_ = static_cast<double>(*bytes) / static_cast<double>(tokens);
  }
  stored_ = file.bytes_of(name, type);
  if (vocab >= int64_t{1} << 8 * item_) return;
  check_once(stored_.file->get(), str(split, "-below-", vocab), [&] {
    std::vector<int32_t> piece(std::size_t{1} << 20);
    for (int64_t at = 0; at < size_; at += std::ssize(piece))
      read(at, std::span(piece).first(std::min(std::ssize(piece), size_ - at)));
  });
}

TokenDataset TokenDataset::random(int64_t size, int64_t vocab, uint64_t seed, ImageShape image) {
  TokenDataset data;
  data.image_ = image;
  data.stored_in_file_ = false;
  data.path_ = "random tokens";
  data.split_ = "train";
  data.size_ = size;
  data.vocab_ = vocab;
  data.item_ = 4;
  std::vector<uint32_t> tokens(size);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Philox4 bits =
        philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32)}, seed);
    tokens[i] = static_cast<uint32_t>(uint64_t{bits[0]} * static_cast<uint64_t>(vocab) >> 32);
  }
  data.stored_.values =
      std::make_shared<std::string>(reinterpret_cast<char*>(tokens.data()), 4 * tokens.size());
  return data;
}

void TokenDataset::read(int64_t first, std::span<int32_t> out) const {
  WEFT_CHECK(first >= 0 && first + std::ssize(out) <= size(), "tokens ", first, " to ",
             first + std::ssize(out) - 1, " of ", size(), " in ", path_);
  // At the end of `out`, where widening from the front on never meets what is not yet widened.
  const auto read_as = [&]<class T>(T token) {
    char* raw = reinterpret_cast<char*>(out.data() + out.size()) - out.size() * sizeof token;
    stored_.read(first * item_, out.size() * sizeof token, raw);
    for (int32_t& wide : out) {
      std::memcpy(&token, raw, sizeof token);
      if (token >= vocab_)
        fail(path_, ": token ", first + (&wide - out.data()), " of ", split_, " is ",
             uint32_t{token}, ", outside the vocabulary of ", vocab_, " (model.vocab)");
      wide = static_cast<int32_t>(token);
      raw += sizeof token;
    }
  };
  item_ == 1 ? read_as(uint8_t{}) : item_ == 2 ? read_as(uint16_t{}) : read_as(uint32_t{});
}

std::string find_data(const std::string& path, const std::string& config_source,
                      const std::string& option) {
  if (path.empty())
    fail("data.path is not set: name an HDF5 file made by prepare, for example ", option);
  namespace fs = std::filesystem;
  const fs::path beside = fs::path(config_source).parent_path() / path;
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  if (fs::exists(beside, ignored)) return beside.string();
  fail("no data file ", path, beside == path ? "" : str(" (nor ", beside.string(), ")"),
       "; make it with prepare, or name another with ", option);
}

Hdf5File create_data_file(const std::string& path, int64_t vocab, const std::string& description,
                          const std::vector<std::string>& sources, Hdf5File::Size size) {
  Hdf5File file = Hdf5File::create(path, size);
  file.set_attribute("format", "weft tokens");
  file.set_attribute("version", kVersion);
  file.set_attribute("vocab", vocab);
  file.set_attribute("description", description);
  file.set_attribute("sources", joined(sources));
  return file;
}

std::string write_token_file(const std::string& path, const TokenArray& tokens, int64_t vocab,
                             const std::vector<double>& split, const std::string& description,
                             const std::vector<std::string>& sources,
                             const std::vector<std::pair<std::string, int64_t>>& attributes) {
  check_split(split);
  WEFT_CHECK(vocab >= 1 && vocab <= kMostVocab, "a token file has a vocabulary of 1 to ",
             kMostVocab, ", got ", vocab);
  const int64_t size = tokens.size();
  const int64_t train = std::llround(split[0] * static_cast<double>(size)),
                valid = std::llround((split[0] + split[1]) * static_cast<double>(size)) - train;
  // a share of 0 was asked for: a file to evaluate
  if (train == 0 && (split[0] > 0 || size == 0))
    fail("split: nothing is left for train of ", size,
         " tokens; give more data or a larger share, or for a file to evaluate --split 0,0,1");

  Hdf5File file = create_data_file(path, vocab, description, sources, Hdf5File::Size::large);
  for (const auto& [name, value] : attributes) file.set_attribute(name, value);
  int64_t first = 0;
  std::string parts;
  const int64_t item = vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
  const StoredType type = item == 1   ? StoredType::u8
                          : item == 2 ? StoredType::u16
                                      : StoredType::u32;
  const auto write = [&](const char* name, int64_t count) {
    file.write(str("/", name), type, {count}, nullptr, fill_with(tokens, first, item, vocab));
    first += count;
    parts += str(parts.empty() ? "" : ", ", name, " ", count);
  };
  write("train", train);
  write("valid", valid);
  write("test", size - train - valid);
  file.commit();
  return str("wrote ", path, ": ", size, " tokens, vocabulary ", vocab, " (", parts, ")",
             warning_of_empty(split, size, valid, size - train - valid));
}
}  // namespace weft
