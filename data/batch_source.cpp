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

}  // namespace

BatchSource::BatchSource(const Config& config, const TokenDataset& train, const TokenDataset* mix)
    : config_(std::make_shared<const Config>(config)),
      batcher_(train, config.seed),
      items_(item_batches(config, train, mix)) {
  if (!items_) check_window(train, config.model.context);
}

void BatchSource::read(int64_t step, int64_t first, int64_t count, int64_t context,
                       HostBatch& out) const {
  out.tokens.resize(count * context);
  if (!items_) return read_windows(step, first, count, context, out);
  WEFT_CHECK(context == config_->model.context, "items are read whole: ", config_->model.context,
             " tokens, not ", context);
  items_->read(step, first, count, out);
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

}  // namespace weft
