// SPDX-License-Identifier: MIT
// Launching, looking, and going back.
#include "train/trainer/run_ahead.h"

#include <cmath>
#include <utility>

#include "train/trainer/data_parallel.h"

namespace weft {
namespace {

// At this loss scale a gradient that is not finite is no overflow that a smaller scale would mend.
constexpr double kSmallestLossScale = 1;

}  // namespace

RunAhead::RunAhead(StepRunner runner, LossScaler& scaler, std::int64_t next, ProcessGroup* group)
    : runner_(std::move(runner)), scaler_(scaler), next_(next), due_(next), group_(group) {}

bool RunAhead::launch() {
  const std::int64_t after = next_ + 1;
  runner_.launch(next_);
  launched_.push_back(next_++);
  const std::size_t lag = scaler_.enabled ? kLag : kLagWithoutScale;
  while (launched_.size() > lag) look();
  return next_ == after;
}

// At the oldest launch.
void RunAhead::look() {
  const std::int64_t step = launched_.front();
  launched_.pop_front();
  const StepResults results = runner_.next_result();
  const bool was_due = step == due_;  // otherwise one before it has to run again
  if (was_due && scaler_.enabled) expect_mendable(step, results);
  if (was_due && (!scaler_.enabled || scaler_.update(results.gradient_norm))) {
    applied_.push_back(results);
    ++due_;
  } else if (was_due) {
    next_ = step;
  }
  const double scale = was_due ? scaler_.scale : 0;
  WEFT_CHECK(!scaler_.enabled || results.loss_scale == static_cast<float>(scale), "update ", step + 1,
             " has left a loss scale of ", results.loss_scale, " on the device, it should be ", scale);
}

void RunAhead::expect_mendable(std::int64_t step, const StepResults& results) {
  const bool overflow = !std::isfinite(results.gradient_norm);
  std::vector<StepResults> of_all{results};
  if (group_ && !overflow) return;  // the others do not know of this loss
  if (group_) average_losses(*group_, of_all);
  if (!std::isfinite(of_all[0].loss) || (overflow && scaler_.scale <= kSmallestLossScale))
    runner_.diverged(step);
}

void RunAhead::settle() {
  const std::int64_t end = next_;
  while (!launched_.empty() || next_ < end) {
    if (next_ < end) {
      launch();
    } else {
      look();
    }
  }
}

std::vector<StepResults> RunAhead::results() { return std::exchange(applied_, {}); }

}  // namespace weft
