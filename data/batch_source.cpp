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

std::string shape_text(const ImageShape& s) { return str(s.height, " x ", s.width, " x ", s.channels); }

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
    if (train.size() < context)
      fail(str(train.path(), ": the split ", train.split(), " has ", train.size(),
               " tokens, fewer than a window of model.context ", context,
               "; use more data or a shorter context"));
    return;
  }
  if (train.image().tokens() != context)
    fail(str("model.context is ", context, ", but an image of ", train.path(), " has ",
             shape_text(train.image()), " = ", train.image().tokens(), " tokens"));
  if (!config.train.context_schedule.empty())
    fail("train.context_schedule: images are trained on whole; leave it out");
  if (mix_ && !(mix_->image() == train.image()))
    fail(str("data.mix: ", mix_->path(), " has ",
             mix_->image() ? "images of " + shape_text(mix_->image()) : "no images", ", ", train.path(),
             " has ", shape_text(train.image())));
  if (!(image_shape(config) == train.image()))
    fail(str("model.position_axes are those of images of ", shape_text(image_shape(config)), ", ",
             train.path(), " has ", shape_text(train.image())));
  augmenter_.emplace(config, train.image());
}

void BatchSource::read(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
                       HostBatch& out) const {
  out.tokens.resize(static_cast<std::size_t>(count * context));
  if (!augmenter_) return read_stream(step, first, count, context, out);
  WEFT_CHECK(context == config_.model.context, "images are read whole: ", config_.model.context,
             " tokens, not ", context);
  out.positions.resize(augmenter_->moves_positions() ? out.tokens.size() : 0);
  out.conditions.resize(static_cast<std::size_t>(count) * augmenter_->conditions().size());
  for (std::int64_t i = 0; i < count; ++i) read_image(step * config_.train.batch + first + i, i, out);
}

void BatchSource::read_stream(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
                              HostBatch& out) const {
  batcher_.read(step, first, count, context, out.tokens);
  out.offsets.clear();
  if (context == config_.model.context) return;
  // Short windows lie anywhere in the full context, so that every row of the position tables is trained from
  // the first step on and nothing is new when the windows grow. Whole rows of the outermost axis: patterns
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
  const auto part = [&](std::vector<std::int32_t>& all, std::int64_t size) {
    return std::span(all).subspan(static_cast<std::size_t>(place * size), static_cast<std::size_t>(size));
  };
  const auto tokens = part(out.tokens, length);
  data.read(image_at(config_.seed, index, count) * length, tokens);
  AugmentChoice choice = augmenter_->draw(config_.seed, index);
  choice[Augment::dataset] = mixed ? 1 : 0;
  augmenter_->apply(choice, tokens,
                    out.positions.empty() ? std::span<std::int32_t>{} : part(out.positions, length));
  augmenter_->rows(choice, part(out.conditions, static_cast<std::int64_t>(augmenter_->conditions().size())));
}

}  // namespace weft
