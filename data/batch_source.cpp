// SPDX-License-Identifier: MIT
// Philox, a counter-based generator, draws where a window begins: there is no state to save.
#include "data/batch_source.h"

#include "kernels/philox.h"
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/files/hdf5.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace weft {
namespace {
// The random bits of one window: words 0 and 1 say where in the stream it begins, word 2 its
// offset.
Philox4 window_bits(uint64_t seed, int64_t step, int64_t index) {
  const auto i = static_cast<uint64_t>(index), update = static_cast<uint64_t>(step);
  return philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32),
                     static_cast<uint32_t>(update), static_cast<uint32_t>(update >> 32)},
                    seed ^ kOrderKey);
}

void check_window(const TokenDataset& data, int64_t context) {
  if (data.size() < context)
    fail(data.path(), ": the split ", data.split(), " has ", data.size(),
         " tokens, fewer than a window of model.context ", context,
         "; use more data or a shorter context");
}

constexpr uint64_t kMixKey = 0x6d6978ull;  // keeps the choice of a file apart from other draws

// Whether image `index` comes from the second file.
bool is_mixed(uint64_t seed, int64_t index, double rate) {
  const auto i = static_cast<uint64_t>(index);
  const Philox4 bits =
      philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32)}, seed ^ kMixKey);
  return bits[0] < rate * 0x1p32;
}
}  // namespace

BatchSource::BatchSource(const Config& config, const TokenDataset& train, const TokenDataset* mix)
    : config_(std::make_shared<const Config>(config)),
      train_(train),
      mix_(mix),
      batcher_(train, config.seed) {
  check_images();
  if (train.image())
    augmenter_.emplace(config, train.image(), labels_of(config, train));
  else
    check_window(train, config.model.context);
}

void BatchSource::read(int64_t step, int64_t first, int64_t count, int64_t context,
                       HostBatch& out) const {
  out.tokens.resize(count * context);
  if (!train_.image()) return read_windows(step, first, count, context, out);
  WEFT_CHECK(context == config_->model.context, "images are read whole: ", config_->model.context,
             " tokens, not ", context);
  read_images(step, first, count, out);
}

// With train.context_schedule windows may be shorter than the context. They lie anywhere in it,
// which trains every row of the position tables. Offsets are whole rows: patterns keep phase.
void BatchSource::read_windows(int64_t step, int64_t first, int64_t count, int64_t context,
                               HostBatch& out) const {
  batcher_.read(step, first, count, context, out.tokens);
  out.offsets.clear();
  if (context == config_->model.context) return;
  const std::vector<int64_t>& axes = config_->model.position_axes;
  const int64_t row =
      std::accumulate(axes.begin() + 1, axes.end(), int64_t{1}, std::multiplies<>());
  out.offsets.resize(count);
  batcher_.read_offsets(step, first, context, config_->model.context, row, out.offsets);
}

void Batcher::read(int64_t step, int64_t first, int64_t count, int64_t context,
                   std::span<int32_t> out) const {
  WEFT_CHECK(std::ssize(out) == count * context, "room for ", out.size(), " tokens, expected ",
             count, " * ", context);
  check_window(data_, context);
  const auto places = static_cast<unsigned __int128>(data_.size() - context + 1);
  const auto start_of = [&](int64_t update, int64_t i) {
    const Philox4 bits = window_bits(seed_, update, first + i);
    const uint64_t uniform = (uint64_t{bits[1]} << 32) | bits[0];
    return static_cast<int64_t>((uniform * places) >> 64);
  };
  for (int64_t i = 0; i < count; ++i) {
    data_.read(start_of(step, i), out.subspan(i * context, context));
    data_.expect(start_of(step + 1, i), context);
  }
}

void Batcher::read_offsets(int64_t step, int64_t first, int64_t context, int64_t full_context,
                           int64_t unit, std::span<int32_t> out) const {
  WEFT_CHECK(unit > 0 && context > 0 && context <= full_context, "windows of ", context,
             " positions in a context of ", full_context, ", in units of ", unit);
  const auto places = static_cast<uint64_t>((full_context - context) / unit + 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Philox4 bits = window_bits(seed_, step, first + static_cast<int64_t>(i));
    const uint64_t place = (bits[2] * places) >> 32;
    out[i] = static_cast<int32_t>(place * static_cast<uint64_t>(unit));
  }
}

// ---- images: each once an epoch, in a new order, from the file or, at random, from that of
// data.mix

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
  file.read(name, StoredType::u16, {data.images()}, labels.data());
  for (const uint16_t label : labels)
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
    if (!augmentations(*config_).empty() || config_->augment.flip)
      fail("augment: ", path, " has a stream of tokens; only images are augmented");
    return;
  }
  if (image.tokens() != config_->model.context)
    fail("model.context is ", config_->model.context, ", but an image of ", path, " has ",
         image.text(), " = ", image.tokens(), " tokens");
  if (!config_->train.context_schedule.empty())
    fail("train.context_schedule: images are trained on whole; leave it out");
  if (mix_ && mix_->image() != image)
    fail("data.mix: ", mix_->path(), " has ",
         mix_->image() ? "images of " + mix_->image().text() : "no images", ", ", path, " has ",
         image.text());
  if (image_shape(*config_) != image)
    fail("model.position_axes are those of images of ", image_shape(*config_).text(), ", ", path,
         " has ", image.text());
}

void BatchSource::read_images(int64_t step, int64_t first, int64_t count, HostBatch& out) const {
  out.positions.resize(augmenter_->moves_positions() ? out.tokens.size() : 0);
  out.conditions.resize(count * augmenter_->conditions().size());
  for (int64_t i = 0; i < count; ++i) read_image(step * config_->train.batch + first + i, i, out);
}

// Image `index` of all that training sees, as sequence `place` of the batch.
void BatchSource::read_image(int64_t index, int64_t place, HostBatch& out) const {
  const bool mixed = mix_ && is_mixed(config_->seed, index, config_->data.mix_rate);
  const TokenDataset& data = mixed ? *mix_ : train_;
  const int64_t limit = config_->data.mix_items, length = config_->model.context;
  const int64_t count = mixed && limit > 0 ? std::min(limit, data.images()) : data.images();
  const auto part = [&](std::vector<int32_t>& all, int64_t size) {
    return std::span(all).subspan(place * size, size);
  };
  const auto tokens = part(out.tokens, length);
  const int64_t image = image_at(config_->seed, index, count);
  data.read(image * length, tokens);
  data.expect(image_at(config_->seed, index + config_->train.batch, count) * length, length);
  AugmentChoice choice = augmenter_->draw(config_->seed, index);
  choice[Augment::label] = augmenter_->label(image);
  choice[Augment::dataset] = mixed ? 1 : 0;
  augmenter_->apply(choice, tokens,
                    out.positions.empty() ? std::span<int32_t>{} : part(out.positions, length));
  augmenter_->rows(choice,
                   part(out.conditions, static_cast<int64_t>(augmenter_->conditions().size())));
}
}  // namespace weft
