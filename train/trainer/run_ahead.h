// SPDX-License-Identifier: MIT
// Updates are launched ahead of what is known of those before, so that a device has always something to do.
// In f16 a gradient that is not finite halves the loss scale, and the same update runs again: those that were
// launched meanwhile changed nothing (kernels/optimizer/loss_scale.h) and are launched again behind it.
// Weights, losses and scales are those of a run that waits for each update before it launches the next one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "kernels/step_scalars.h"
#include "src/optimizer.h"
#include "src/ranks/process_group.h"

namespace weft {

// Who launches updates, and says how they went.
struct StepRunner {
  std::function<void(std::int64_t step)> launch;  // update `step`, without waiting for it
  std::function<StepResults()> next_result;       // of the oldest launch not asked for; waits for that one
  // Throws Error. In f16: the loss of update `step` is not finite, or its gradient is not and a smaller scale
  // would not mend that.
  std::function<void(std::int64_t step)> diverged;
};

class RunAhead {
 public:
  // Updates from `next` on. `scaler` is that of all updates that are known to have been applied; one that is
  // not enabled takes each as applied. With `group`, every rank makes the same calls: gradients have the same
  // norm everywhere, so that all see an overflow at the same call, and each speaks to the others then. A loss
  // that is not finite beside a gradient that is ends one process at once; of several, results() has it.
  RunAhead(StepRunner, LossScaler& scaler, std::int64_t next, ProcessGroup* group);

  std::int64_t next() const { return next_; }  // the update that is launched next
  // Launches update next(), then looks at the one that was launched kLag launches before. False: that, or an
  // earlier one, has to run again and is next().
  bool launch();
  // Returns when all updates before next() have been applied, whatever has to run again for it.
  void settle();
  // Of the updates that were applied since the last call, in order; of this process. After settle() that is
  // all of them before next().
  std::vector<StepResults> results();

  // Launches behind the one that is looked at: enough for the device to go on. Where nothing can have to run
  // again, so many that the device is there already.
  static constexpr std::size_t kLag = 2, kLagWithoutScale = 16;

 private:
  void look();
  void expect_mendable(std::int64_t step, const StepResults&);

  StepRunner runner_;
  LossScaler& scaler_;
  std::int64_t next_, due_;  // due_: all before it were applied
  ProcessGroup* group_;
  std::deque<std::int64_t> launched_;  // not looked at, oldest first
  std::vector<StepResults> applied_;
};

}  // namespace weft
