// SPDX-License-Identifier: MIT
#include "data/formats/image_set.h"

#include "data/data_file.h"
#include "kernels/philox.h"
#include "kernels/view.h"
#include "src/config/config.h"
#include "src/files/hdf5.h"

#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
// A Feistel network over the least even number of bits that holds `count` values: a permutation of
// them.
uint64_t permuted(uint64_t value, int half_bits, uint64_t epoch, uint64_t seed) {
  constexpr int kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Philox4 bits =
        philox4x32({static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32) ^ round << 24,
                    static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)},
                   seed ^ kOrderKey);
    const uint64_t next = left ^ (bits[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

// Writes pixels and labels; returns how many images there are.
int64_t write_split(Hdf5File& file, const std::string& name, const ImageShape& shape,
                    const ImageSplit& split) {
  const auto size = std::ssize(split.pixels), count = size / shape.tokens();
  WEFT_CHECK(size % shape.tokens() == 0, "the split ", name, " has ", size,
             " bytes, which is no number of ", shape.text(), " images");
  const auto labels = std::ssize(split.labels);
  WEFT_CHECK(labels == 0 || labels == count, "the split ", name, " has ", count, " images and ",
             labels, " labels");
  file.write("/" + name, StoredType::u8, {count, shape.height, shape.width, shape.channels},
             split.pixels.data());
  if (labels > 0) file.write("/labels/" + name, StoredType::u16, {labels}, split.labels.data());
  return count;
}

}  // namespace

int64_t image_at(uint64_t seed, int64_t index, int64_t count) {
  WEFT_CHECK(count > 0 && index >= 0, "image ", index, " of an order of ", count);
  int half_bits = 1;
  while ((int64_t{1} << 2 * half_bits) < count) ++half_bits;
  auto place = static_cast<uint64_t>(index % count);
  do place = permuted(place, half_bits, static_cast<uint64_t>(index / count), seed);
  while (place >= static_cast<uint64_t>(count));  // follows its cycle: still a permutation
  return static_cast<int64_t>(place);
}

std::string write_image_file(const std::string& path, const ImageShape& shape,
                             const ImageSplit& train, const ImageSplit& valid,
                             const ImageSplit& test, const std::string& description,
                             const std::vector<std::string>& sources) {
  WEFT_CHECK(shape.height > 0 && shape.width > 0 && shape.channels > 0, "images of ", shape.text());
  if (train.pixels.empty()) fail(path, ": no image is left for train");
  Hdf5File file = create_data_file(path, 256, description, sources);
  file.set_attribute("height", shape.height);
  file.set_attribute("width", shape.width);
  file.set_attribute("channels", shape.channels);
  const int64_t trains = write_split(file, "train", shape, train),
                valids = write_split(file, "valid", shape, valid),
                tests = write_split(file, "test", shape, test);
  file.commit();
  return str("wrote ", path, ": ", trains + valids + tests, " images of ", shape.text(), " (train ",
             trains, ", valid ", valids, ", test ", tests, ")");
}

ImageShape image_shape(const Config& config) {
  const std::vector<int64_t>& axes = config.model.position_axes;
  if (axes.size() != 3)
    fail("model.position_axes: images have 3 axes (rows, columns, channels), found ", axes.size());
  return {axes[0], axes[1], axes[2]};
}

std::vector<uint16_t> labels_of(const Config& config, const TokenDataset& data) {
  std::vector<uint16_t> labels;
  if (!config.data.labels) return labels;
  if (!data.image())
    fail("data.labels: ", data.path(), " has a stream of tokens; only images have classes");
  labels.resize(data.images());
  if (!data.stored()) return labels;
  const Hdf5File file = Hdf5File::open(data.path());
  const std::string name = "/labels/" + data.split();
  if (!file.has(name))
    fail("data.labels: ", data.path(), " has no ", name,
         "; prepare it anew from images with classes");
  std::vector<int64_t> stored(labels.size());
  file.read(name, StoredType::i64, {data.images()}, stored.data());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (stored[i] < 0 || stored[i] >= config.data.classes)
      fail("data.classes: ", data.path(), ": ", name, ": image ", i, " is of class ", stored[i],
           ", expected 0 to ", config.data.classes - 1, "; set data.classes");
    labels[i] = static_cast<uint16_t>(stored[i]);
  }
  return labels;
}
}  // namespace weft
