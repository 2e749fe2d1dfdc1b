// SPDX-License-Identifier: MIT
#include "train/trainer/run_ahead.h"

#include "kernels/layers/pointwise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace weft {
constexpr int64_t kFloats = sizeof(StepResults) / sizeof(float);

RunAhead::RunAhead(Device& device, int64_t micro_batches, bool scaled)
    : micro_batches_(micro_batches),
      scaled_(scaled),
      history_(*device.host_pool, {kMost, micro_batches, kFloats}, DType::f32, "step"),
      launched_at_(kMost) {
  for (int64_t i = 0; i < kMost * micro_batches; ++i) marks_.push_back(device.make_mark());
}

std::size_t RunAhead::row(int64_t update, int64_t micro) const {
  return update % kMost * micro_batches_ + micro;
}

void RunAhead::make_room(int64_t micro) {
  if (micro > 0) {
    if (limit_ == 1) marks_[row(launched_, micro - 1)]->wait();
    return;
  }
  while (launched_ - read_ >= limit_) {
    const Clock::time_point began = std::max(launched_at_[read_ % kMost], last_read_);
    read_oldest();
    const double seconds = std::chrono::duration<double>(last_read_ - began).count();
    limit_ =
        static_cast<int64_t>(std::clamp(kSeconds / std::max(seconds, 1e-9), 1.0, double{kMost}));
  }
  launched_at_[launched_ % kMost] = Clock::now();
}

void RunAhead::record(Ctx& ctx, int64_t micro, const Tensor& results, bool counted) {
  const std::size_t at = row(launched_, micro);
  ctx.launch(Add{{history_.slice(static_cast<int64_t>(at) * kFloats, {kFloats}), false}, results});
  marks_[at]->record();
  if (counted && micro + 1 == micro_batches_) ++launched_;
}

void RunAhead::read_oldest() {
  // at last by the last micro-batch, behind which the norm is known
  const float* reported = nullptr;
  double loss = 0;
  for (int64_t micro = 0; micro < micro_batches_; ++micro) {
    marks_[row(read_, micro)]->wait();
    reported = history_.view().as<float>() + row(read_, micro) * kFloats;
    loss += reported[0];
  }
  unasked_.push_back({
      .loss = static_cast<float>(loss / static_cast<double>(micro_batches_)),
      .gradient_norm = reported[1],
      .update_scale = reported[2],
      .loss_scale = reported[3],
  });
  diverged_ |= has_diverged(unasked_.back(), scaled_);
  ++read_;
  last_read_ = Clock::now();
}

StepResults RunAhead::next_result() {
  WEFT_CHECK(read_ < launched_ || !unasked_.empty(),
             "the results of an update were asked for that nobody launched");
  if (unasked_.empty()) read_oldest();
  const StepResults oldest = unasked_.front();
  unasked_.pop_front();
  return oldest;
}

std::vector<StepResults> RunAhead::results() {
  while (read_ < launched_) read_oldest();
  const std::vector<StepResults> all(unasked_.begin(), unasked_.end());
  unasked_.clear();
  return all;
}

bool has_diverged(const StepResults& r, bool scaled) {
  constexpr float kSmallestLossScale = 1;
  const bool skipped =
      scaled && !std::isfinite(r.gradient_norm) && r.loss_scale >= kSmallestLossScale;
  return !std::isfinite(r.loss) || !(std::isfinite(r.gradient_norm) || skipped);
}
}  // namespace weft
