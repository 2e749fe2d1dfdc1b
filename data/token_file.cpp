// SPDX-License-Identifier: MIT
#include <algorithm>
#include <numeric>

#include "data/dataset.h"
#include "kernels/view.h"
#include "src/config/names.h"
#include "src/files/hdf5.h"

namespace weft {
namespace {

constexpr std::int64_t kVersion = 1;

void check_split(const std::vector<double>& split) {
  const std::string expected =
      "expected three shares for train, valid and test that sum to 1, such as 0.9,0.05,0.05";
  const bool good =
      split.size() == 3 && std::ranges::all_of(split, [](double s) { return s >= 0 && s <= 1; });
  if (!good || std::abs(std::accumulate(split.begin(), split.end(), 0.0) - 1) > 1e-9)
    fail("split ", joined(split, ","), ": ", expected);
}

// A file with the attributes that all have.
Hdf5File create_file(const std::string& path, std::int64_t vocab, const std::string& description,
                     const std::vector<std::string>& sources,
                     Hdf5File::Size size = Hdf5File::Size::fits_memory) {
  Hdf5File file = Hdf5File::create(path, size);
  file.set_attribute("format", "weft tokens");
  file.set_attribute("version", kVersion);
  file.set_attribute("vocab", vocab);
  file.set_attribute("description", description);
  file.set_attribute("sources", joined(sources));
  return file;
}

// Writes pixels and labels; returns how many images there are.
std::int64_t write_split(Hdf5File& file, const std::string& name, const ImageShape& shape,
                         const ImageSplit& split) {
  const auto size = static_cast<std::int64_t>(split.pixels.size()), count = size / shape.tokens();
  WEFT_CHECK(size % shape.tokens() == 0, "the split ", name, " has ", size, " bytes, which is no number of ",
             shape.text(), " images");
  const auto labels = static_cast<std::int64_t>(split.labels.size());
  WEFT_CHECK(labels == 0 || labels == count, "the split ", name, " has ", count, " images and ", labels,
             " labels");
  file.write("/" + name, StoredType::u8, {count, shape.height, shape.width, shape.channels},
             split.pixels.data());
  if (labels > 0) file.write("/labels/" + name, StoredType::u16, {labels}, split.labels.data());
  return count;
}

// Writes tokens first .. as unsigned numbers of `item` bytes.
FillBytes fill_with(const NpyArray& tokens, std::int64_t first, std::int64_t item, std::int64_t vocab) {
  return [&tokens, first, item, vocab](std::int64_t at, std::span<char> bytes) {
    for (std::int64_t i = first + at / item, to = 0; to < std::ssize(bytes); ++i, to += item) {
      const std::int64_t token = tokens.value(i);
      if (token < 0 || token >= vocab)
        fail("token ", i, " is ", token, ", outside the vocabulary of ", vocab);
      for (std::int64_t b = 0; b < item; ++b) bytes[to + b] = static_cast<char>(token >> 8 * b);
    }
  };
}

}  // namespace

std::string write_token_file(const std::string& path, const TokenArray& tokens, std::int64_t vocab,
                             const std::vector<double>& split, const std::string& description,
                             const std::vector<std::string>& sources,
                             const std::vector<std::pair<std::string, std::int64_t>>& attributes) {
  check_split(split);
  WEFT_CHECK(vocab >= 1 && vocab <= kMostVocab, "a token file has a vocabulary of 1 to ", kMostVocab,
             ", got ", vocab);
  const std::int64_t size = tokens.size();
  const std::int64_t train = std::llround(split[0] * static_cast<double>(size)),
                     valid = std::llround((split[0] + split[1]) * static_cast<double>(size)) - train;
  if (train == 0) fail("split: nothing is left for train of ", size, " tokens");

  Hdf5File file = create_file(path, vocab, description, sources, Hdf5File::Size::large);
  for (const auto& [name, value] : attributes) file.set_attribute(name, value);
  std::int64_t first = 0;
  std::string parts;
  const std::int64_t item = vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
  const StoredType type = item == 1 ? StoredType::u8 : item == 2 ? StoredType::u16 : StoredType::u32;
  const auto write = [&](const char* name, std::int64_t count) {
    file.write(str("/", name), type, {count}, nullptr, fill_with(tokens, first, item, vocab));
    first += count;
    parts += str(parts.empty() ? "" : ", ", name, " ", count);
  };
  write("train", train);
  write("valid", valid);
  write("test", size - train - valid);
  file.commit();
  return str("wrote ", path, ": ", size, " tokens, vocabulary ", vocab, " (", parts, ")");
}

std::string write_image_file(const std::string& path, const ImageShape& shape, const ImageSplit& train,
                             const ImageSplit& valid, const ImageSplit& test, const std::string& description,
                             const std::vector<std::string>& sources) {
  WEFT_CHECK(shape.height > 0 && shape.width > 0 && shape.channels > 0, "images of ", shape.text());
  if (train.pixels.empty()) fail(path, ": no image is left for train");
  Hdf5File file = create_file(path, 256, description, sources);
  file.set_attribute("height", shape.height);
  file.set_attribute("width", shape.width);
  file.set_attribute("channels", shape.channels);
  const std::int64_t trains = write_split(file, "train", shape, train),
                     valids = write_split(file, "valid", shape, valid),
                     tests = write_split(file, "test", shape, test);
  file.commit();
  return str("wrote ", path, ": ", trains + valids + tests, " images of ", shape.text(), " (train ", trains,
             ", valid ", valids, ", test ", tests, ")");
}

}  // namespace weft
