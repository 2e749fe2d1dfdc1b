// SPDX-License-Identifier: MIT
// Windows or images, batch after batch.
#include "data/batch_source.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kernels/philox.h"
#include "kernels/view.h"

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

// Numbers of sequence `place`, `size` of each.
std::span<std::int32_t> part_of(std::vector<std::int32_t>& all, std::int64_t place, std::int64_t size) {
  if (all.empty()) return {};
  return std::span(all).subspan(static_cast<std::size_t>(place * size), static_cast<std::size_t>(size));
}

}  // namespace

void augment_sequence(const Augmenter& augmenter, const AugmentChoice& choice, std::int64_t place,
                      std::int64_t length, HostBatch& batch) {
  const auto kinds = static_cast<std::int64_t>(augmenter.conditions().size());
  batch.positions.resize(augmenter.moves_positions() ? batch.tokens.size() : 0);
  batch.conditions.resize(batch.tokens.size() / static_cast<std::size_t>(length) *
                          augmenter.conditions().size());
  augmenter.apply(choice, part_of(batch.tokens, place, length), part_of(batch.positions, place, length));
  augmenter.rows(choice, part_of(batch.conditions, place, kinds));
}

ImageShape image_shape(const Config& config) {
  const std::vector<std::int64_t>& axes = config.model.position_axes;
  if (axes.size() != 3)
    fail(str("model.position_axes: images have 3 axes (rows, columns, channels), found ", axes.size()));
  return {axes[0], axes[1], axes[2]};
}

BatchSource::BatchSource(const Config& config, const TokenDataset& train, const TokenDataset* mix)
    : config_(config), train_(train), mix_(mix), batcher_(train, config.seed) {
  const std::int64_t context = config.model.context;
  if (!train.image()) {
    if (mix_) fail(str("data.mix: ", train.path(), " has a stream of tokens; only images are mixed"));
    if (!augmentations(config).empty() || config.augment.flip)
      fail(str("augment: ", train.path(), " has a stream of tokens; only images are augmented"));
    batcher_.check_window(context);
    return;
  }
  if (train.image().tokens() != context)
    fail(str("model.context is ", context, ", but an image of ", train.path(), " has ", train.image().text(),
             " = ", train.image().tokens(), " tokens"));
  if (!config.train.context_schedule.empty())
    fail("train.context_schedule: images are trained on whole; leave it out");
  if (mix_ && !(mix_->image() == train.image()))
    fail(str("data.mix: ", mix_->path(), " has ",
             mix_->image() ? "images of " + mix_->image().text() : "no images", ", ", train.path(), " has ",
             train.image().text()));
  if (!(image_shape(config) == train.image()))
    fail(str("model.position_axes are those of images of ", image_shape(config).text(), ", ", train.path(),
             " has ", train.image().text()));
  augmenter_.emplace(config, train.image());
}

void BatchSource::read(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
                       HostBatch& out) const {
  out.tokens.resize(static_cast<std::size_t>(count * context));
  if (!augmenter_) return read_stream(step, first, count, context, out);
  WEFT_CHECK(context == config_.model.context, "images are read whole: ", config_.model.context,
             " tokens, not ", context);
  for (std::int64_t i = 0; i < count; ++i) read_image(step * config_.train.batch + first + i, i, out);
}

void BatchSource::read_stream(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
                              HostBatch& out) const {
  batcher_.read(step, first, count, context, out.tokens);
  out.offsets.clear();
  if (context == config_.model.context) return;
  // Short windows lie anywhere in the full context. So every row of the position tables is trained from the
  // first step on, and nothing is new when the windows grow. Whole rows of the outermost axis: patterns
  // keep their phase.
  const std::vector<std::int64_t>& axes = config_.model.position_axes;
  const std::int64_t unit =
      std::accumulate(axes.begin() + 1, axes.end(), std::int64_t{1}, std::multiplies<>());
  out.offsets.resize(static_cast<std::size_t>(count));
  batcher_.read_offsets(step, first, context, config_.model.context, unit, out.offsets);
}

// Image `index` of all that training sees, as sequence `place` of the batch.
void BatchSource::read_image(std::int64_t index, std::int64_t place, HostBatch& out) const {
  const bool mixed = mix_ && is_mixed(config_.seed, index, config_.data.mix_rate);
  const TokenDataset& data = mixed ? *mix_ : train_;
  const std::int64_t limit = config_.data.mix_items, length = config_.model.context;
  const std::int64_t count = mixed && limit > 0 ? std::min(limit, data.images()) : data.images();
  data.read(image_at(config_.seed, index, count) * length, part_of(out.tokens, place, length));
  AugmentChoice choice = augmenter_->draw(config_.seed, index);
  choice[Augment::dataset] = mixed ? 1 : 0;
  augment_sequence(*augmenter_, choice, place, length, out);
}

}  // namespace weft
