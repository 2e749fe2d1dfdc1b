// SPDX-License-Identifier: MIT
// The batch of an update from a stream of tokens: text, audio. Images: data/image_batches.cpp.
//
// A training sequence is a window of `context` tokens that begins anywhere in the stream. Philox, a
// counter-based generator, draws the place from (seed, step, index in the batch). There is no state to save:
// a run resumes from its step, and each process reads its own windows of one batch.
#include "data/batch_source.h"

#include <numeric>

#include "kernels/philox.h"
#include "kernels/view.h"

namespace weft {
namespace {

// The random bits of one window: words 0 and 1 say where in the stream it begins, word 2 its offset.
Philox4 window_bits(std::uint64_t seed, std::int64_t step, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index), update = static_cast<std::uint64_t>(step);
  return philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32),
                     static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32)},
                    seed ^ kOrderKey);
}

void check_window(const TokenDataset& data, std::int64_t context) {
  if (data.size() < context)
    fail(data.path(), ": the split ", data.split(), " has ", data.size(),
         " tokens, fewer than a window of model.context ", context, "; use more data or a shorter context");
}

}  // namespace

BatchSource::BatchSource(const Config& config, const TokenDataset& train, const TokenDataset* mix)
    : config_(config), train_(train), mix_(mix), batcher_(train, config.seed) {
  check_images();
  if (train.image())
    augmenter_.emplace(config, train.image(), labels_of(config, train));
  else
    check_window(train, config.model.context);
}

void BatchSource::read(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
                       HostBatch& out) const {
  out.tokens.resize(count * context);
  if (!train_.image()) return read_windows(step, first, count, context, out);
  WEFT_CHECK(context == config_.model.context, "images are read whole: ", config_.model.context,
             " tokens, not ", context);
  read_images(step, first, count, out);
}

// Windows may be shorter than the context early in training (train.context_schedule). They lie anywhere in
// the full context, which trains every row of the position tables. Offsets are whole rows: patterns keep
// phase.
void BatchSource::read_windows(std::int64_t step, std::int64_t first, std::int64_t count,
                               std::int64_t context, HostBatch& out) const {
  batcher_.read(step, first, count, context, out.tokens);
  out.offsets.clear();
  if (context == config_.model.context) return;
  const std::vector<std::int64_t>& axes = config_.model.position_axes;
  const std::int64_t row =
      std::accumulate(axes.begin() + 1, axes.end(), std::int64_t{1}, std::multiplies<>());
  out.offsets.resize(count);
  batcher_.read_offsets(step, first, context, config_.model.context, row, out.offsets);
}

void Batcher::read(std::int64_t step, std::int64_t first, std::int64_t count, std::int64_t context,
                   std::span<std::int32_t> out) const {
  WEFT_CHECK(static_cast<std::int64_t>(out.size()) == count * context, "room for ", out.size(),
             " tokens, expected ", count, " * ", context);
  check_window(data_, context);
  const auto places = static_cast<unsigned __int128>(data_.size() - context + 1);
  const auto start_of = [&](std::int64_t update, std::int64_t i) {
    const Philox4 bits = window_bits(seed_, update, first + i);
    const std::uint64_t uniform = (std::uint64_t{bits[1]} << 32) | bits[0];
    return static_cast<std::int64_t>((uniform * places) >> 64);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    data_.read(start_of(step, i), out.subspan(i * context, context));
    data_.expect(start_of(step + 1, i), context);
  }
}

void Batcher::read_offsets(std::int64_t step, std::int64_t first, std::int64_t context,
                           std::int64_t full_context, std::int64_t unit, std::span<std::int32_t> out) const {
  WEFT_CHECK(unit > 0 && context > 0 && context <= full_context, "windows of ", context,
             " positions in a context of ", full_context, ", in units of ", unit);
  const auto places = static_cast<std::uint64_t>((full_context - context) / unit + 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Philox4 bits = window_bits(seed_, step, first + static_cast<std::int64_t>(i));
    const std::uint64_t place = (bits[2] * places) >> 32;
    out[i] = static_cast<std::int32_t>(place * static_cast<std::uint64_t>(unit));
  }
}

}  // namespace weft
