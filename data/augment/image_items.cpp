// SPDX-License-Identifier: MIT
// Images for training, each once an epoch, in a new order, from the file or, at random, from that
// of data.mix; and for evaluation.
#include "data/augment/image_items.h"

#include "kernels/philox.h"
#include "kernels/view.h"
#include "src/config/conditions.h"
#include "src/config/config.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr uint64_t kMixKey = 0x6d6978ull;  // keeps the choice of a file apart from other draws

// Whether image `index` comes from the second file.
bool is_mixed(uint64_t seed, int64_t index, double rate) {
  const auto i = static_cast<uint64_t>(index);
  const Philox4 bits =
      philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32)}, seed ^ kMixKey);
  return bits[0] < rate * 0x1p32;
}

// Throws Error, naming keys and shapes, where config and data differ.
void check_images(const Config& config, const TokenDataset& train, const TokenDataset* mix) {
  const std::string& path = train.path();
  const ImageShape& image = train.image();
  if (!image) {
    if (mix) fail("data.mix: ", path, " has a stream of tokens; only images are mixed");
    if (!augmentations(config).empty() || config.augment.flip)
      fail("augment: ", path, " has a stream of tokens; only images are augmented");
    return;
  }
  if (image.tokens() != config.model.context)
    fail("model.context is ", config.model.context, ", but an image of ", path, " has ",
         image.text(), " = ", image.tokens(), " tokens");
  if (!config.train.context_schedule.empty())
    fail("train.context_schedule: images are trained on whole; leave it out");
  if (config.data.separator >= 0)
    fail("data.separator: parts texts into documents, and ", path, " has images; leave it out");
  if (mix && mix->image() != image)
    fail("data.mix: ", mix->path(), " has ",
         mix->image() ? "images of " + mix->image().text() : "no images", ", ", path, " has ",
         image.text());
  if (image_shape(config) != image)
    fail("model.position_axes are those of images of ", image_shape(config).text(), ", ", path,
         " has ", image.text());
}

class ImageBatches : public ItemBatches {
 public:
  ImageBatches(const Config& config, const TokenDataset& train, const TokenDataset* mix)
      : config_(config),
        train_(train),
        mix_(mix),
        augmenter_(config, train.image(), labels_of(config, train)) {}

  void read(int64_t step, int64_t first, int64_t count, HostBatch& out) const override {
    out.positions.resize(augmenter_.moves_positions() ? out.tokens.size() : 0);
    out.conditions.resize(count * augmenter_.conditions().size());
    for (int64_t i = 0; i < count; ++i) read_image(step * config_.train.batch + first + i, i, out);
  }

 private:
  // Image `index` of all that training sees, as sequence `place` of the batch.
  void read_image(int64_t index, int64_t place, HostBatch& out) const {
    const bool mixed = mix_ && is_mixed(config_.seed, index, config_.data.mix_rate);
    const TokenDataset& data = mixed ? *mix_ : train_;
    const int64_t limit = config_.data.mix_items, length = config_.model.context;
    const int64_t count = mixed && limit > 0 ? std::min(limit, data.images()) : data.images();
    const auto part = [&](std::vector<int32_t>& all, int64_t size) {
      return std::span(all).subspan(place * size, size);
    };
    const auto tokens = part(out.tokens, length);
    const int64_t image = image_at(config_.seed, index, count);
    data.read(image * length, tokens);
    data.expect(image_at(config_.seed, index + config_.train.batch, count) * length, length);
    AugmentChoice choice = augmenter_.draw(config_.seed, index);
    choice[Augment::label] = augmenter_.label(image);
    choice[Augment::dataset] = mixed ? 1 : 0;
    augmenter_.apply(choice, tokens,
                     out.positions.empty() ? std::span<int32_t>{} : part(out.positions, length));
    augmenter_.rows(choice,
                    part(out.conditions, static_cast<int64_t>(augmenter_.conditions().size())));
  }

  Config config_;
  const TokenDataset& train_;
  const TokenDataset* mix_;
  Augmenter augmenter_;
};

std::unique_ptr<ItemBatches> make_batches(const Config& config, const TokenDataset& train,
                                          const TokenDataset* mix) {
  check_images(config, train, mix);
  return train.image() ? std::make_unique<ImageBatches>(config, train, mix) : nullptr;
}

std::unique_ptr<ItemView> make_view(const Config& config, const TokenDataset& data) {
  return image_view(config, data, {});
}

bool asks_for_images(const Config& config) {
  return !augmentations(config).empty() || config.augment.flip;
}
}  // namespace

ImageView::ImageView(const Config& config, const TokenDataset& data, const AugmentChoice& choice)
    : augmenter_(config, data.image(), labels_of(config, data)),
      choice_(choice) {}

void ImageView::apply(int64_t item, std::span<int32_t> tokens, std::span<int32_t> positions,
                      std::span<int32_t> conditions) const {
  AugmentChoice choice = choice_;
  choice.key = static_cast<uint64_t>(item);  // an image's own random operations
  choice[Augment::label] = augmenter_.label(item);
  augmenter_.apply(choice, tokens, positions);
  augmenter_.rows(choice, conditions);
}

std::unique_ptr<ItemView> image_view(const Config& config, const TokenDataset& data,
                                     const AugmentChoice& choice) {
  const ModelConfig& model = config.model;
  if (!data.image()) {
    if (!augmentations(config).empty() || config.data.labels)
      fail("this model is trained on images, ", data.path(), " has a stream of tokens");
    return nullptr;
  }
  if (model.position_axes.size() != 3 || model.context != image_shape(config).tokens())
    fail(data.path(), " has images of ", data.image().text(), "; this model reads ", model.context,
         " tokens that are no image (model.position_axes has ", model.position_axes.size(),
         " axes)");
  if (!(image_shape(config) == data.image()))
    fail(data.path(), " has images of ", data.image().text(), ", this model is made for ",
         image_shape(config).text());
  return std::make_unique<ImageView>(config, data, choice);
}

ItemKind image_items() { return {make_batches, make_view, asks_for_images, nullptr}; }
}  // namespace weft
