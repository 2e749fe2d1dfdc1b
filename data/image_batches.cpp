// SPDX-License-Identifier: MIT
// The part of a BatchSource that reads images: each once an epoch, in a new order, from the file or, at
// random, from that of data.mix, and augmented.
#include <algorithm>

#include "data/batch_source.h"
#include "kernels/philox.h"
#include "kernels/view.h"
#include "src/files/hdf5.h"

namespace weft {
namespace {

constexpr std::uint64_t kMixKey = 0x6d6978ull;  // keeps the choice of a file apart from other draws

// Whether image `index` comes from the second file.
bool is_mixed(std::uint64_t seed, std::int64_t index, double rate) {
  const auto i = static_cast<std::uint64_t>(index);
  const Philox4 bits =
      philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32)}, seed ^ kMixKey);
  return bits[0] < rate * 0x1p32;
}

}  // namespace

ImageShape image_shape(const Config& config) {
  const std::vector<std::int64_t>& axes = config.model.position_axes;
  if (axes.size() != 3)
    fail("model.position_axes: images have 3 axes (rows, columns, channels), found ", axes.size());
  return {axes[0], axes[1], axes[2]};
}

std::vector<std::uint16_t> labels_of(const Config& config, const TokenDataset& data) {
  std::vector<std::uint16_t> labels;
  if (!config.data.labels) return labels;
  if (!data.image()) fail("data.labels: ", data.path(), " has a stream of tokens; only images have classes");
  labels.resize(static_cast<std::size_t>(data.images()));
  if (!data.stored()) return labels;
  const Hdf5File file = Hdf5File::open(data.path());
  const std::string name = "/labels/" + data.split();
  if (!file.has(name))
    fail("data.labels: ", data.path(), " has no ", name, "; prepare it anew from images with classes");
  file.read(name, StoredType::u16, {data.images()}, labels.data());
  for (const std::uint16_t label : labels)
    if (label >= config.data.classes)
      fail("data.classes: ", data.path(), " has an image of class ", label, ", expected 0 to ",
           config.data.classes - 1, "; set data.classes");
  return labels;
}

void BatchSource::check_images() const {
  const std::string& path = train_.path();
  const ImageShape& image = train_.image();
  if (!image) {
    if (mix_) fail("data.mix: ", path, " has a stream of tokens; only images are mixed");
    if (!augmentations(config_).empty() || config_.augment.flip)
      fail("augment: ", path, " has a stream of tokens; only images are augmented");
    return;
  }
  if (image.tokens() != config_.model.context)
    fail("model.context is ", config_.model.context, ", but an image of ", path, " has ", image.text(), " = ",
         image.tokens(), " tokens");
  if (!config_.train.context_schedule.empty())
    fail("train.context_schedule: images are trained on whole; leave it out");
  if (mix_ && mix_->image() != image)
    fail("data.mix: ", mix_->path(), " has ",
         mix_->image() ? "images of " + mix_->image().text() : "no images", ", ", path, " has ",
         image.text());
  if (image_shape(config_) != image)
    fail("model.position_axes are those of images of ", image_shape(config_).text(), ", ", path, " has ",
         image.text());
}

void BatchSource::read_images(std::int64_t step, std::int64_t first, std::int64_t count,
                              HostBatch& out) const {
  out.positions.resize(augmenter_->moves_positions() ? out.tokens.size() : 0);
  out.conditions.resize(count * augmenter_->conditions().size());
  for (std::int64_t i = 0; i < count; ++i) read_image(step * config_.train.batch + first + i, i, out);
}

// Image `index` of all that training sees, as sequence `place` of the batch.
void BatchSource::read_image(std::int64_t index, std::int64_t place, HostBatch& out) const {
  const bool mixed = mix_ && is_mixed(config_.seed, index, config_.data.mix_rate);
  const TokenDataset& data = mixed ? *mix_ : train_;
  const std::int64_t limit = config_.data.mix_items, length = config_.model.context;
  const std::int64_t count = mixed && limit > 0 ? std::min(limit, data.images()) : data.images();
  const auto part = [&](std::vector<std::int32_t>& all, std::int64_t size) {
    return std::span(all).subspan(place * size, size);
  };
  const auto tokens = part(out.tokens, length);
  const std::int64_t image = image_at(config_.seed, index, count);
  data.read(image * length, tokens);
  data.expect(image_at(config_.seed, index + config_.train.batch, count) * length, length);
  AugmentChoice choice = augmenter_->draw(config_.seed, index);
  choice[Augment::label] = augmenter_->label(image);
  choice[Augment::dataset] = mixed ? 1 : 0;
  augmenter_->apply(choice, tokens,
                    out.positions.empty() ? std::span<std::int32_t>{} : part(out.positions, length));
  augmenter_->rows(choice, part(out.conditions, static_cast<std::int64_t>(augmenter_->conditions().size())));
}

}  // namespace weft
