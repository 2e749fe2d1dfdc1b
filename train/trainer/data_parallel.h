// SPDX-License-Identifier: MIT
// What processes that train together do for each other. What is here is a process alone; several
// come with a part.
#pragma once

#include "src/optimizer/optimizer.h"
#include "src/processes.h"
#include "train/trainer/report.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// A training step that several processes share: their gradients are summed while the backward pass
// of the last micro-batch goes on, and they update together.
class SharedStep {
 public:
  virtual ~SharedStep() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void plan(double seconds) = 0;              // that a backward pass takes at least
  virtual void begin() = 0;                           // of that backward pass
  virtual void complete(Ctx&, int32_t first) = 0;     // called by Ctx::mark
  virtual void finish(Ctx&) = 0;                      // after it; the queue then waits for all
  virtual void update(Ctx&, const TrainConfig&) = 0;  // as update_parameters()

  // Called with each range of this process's own gradients before it is summed; may be captured.
  std::function<void(Ctx&, const GradientRange&, const Tensor&)> on_own_gradients;
};

class DataParallel {
 public:
  virtual ~DataParallel() = default;

  // For people: how many processes there are and what carries their sums; "": one.
  virtual std::string text() { return ""; }

  // Who started the processes: "torchrun"; "": this program.
  virtual std::string started_by() const { return ""; }

  // How they share the optimizer's state; null: each has everything.
  virtual std::shared_ptr<Sharing> sharing(const TrainConfig&, DType /*compute*/) {
    return nullptr;
  }

  // Null: there is one process. The store outlives it.
  virtual std::unique_ptr<SharedStep> share_step(ParameterStore&, const TrainConfig&) {
    return nullptr;
  }

  // The rest is collective.

  // The choice of the process that takes the smallest micro-batches.
  virtual MicroBatch smallest(const MicroBatch& mine) { return mine; }

  // Why to stop, "" for not at all: a signal or a clock is seen by one process, at a step of its
  // own. Every process calls it with its own reason before `position`, in either kind of work.
  enum class Work { training, evaluation };

  virtual std::string agree(Work, int64_t /*position*/, const std::string& mine) { return mine; }

  // The message of the lowest rank that has one, and its number; "" if there is none.
  virtual std::string first_message(const std::string& mine) { return mine; }

  // Losses of every step become their means over the processes. The rest is the same everywhere.
  virtual void average_losses(std::vector<StepResults>&) {}

  // Ends all processes, with a line that names those whose weights differ.
  virtual void check_equal_weights(const ParameterStore&, int64_t /*step*/) {}
};

std::unique_ptr<DataParallel> make_data_parallel(Device&, Processes&);
// Makes it for several processes; a part sets it (src/parts/parts.h).
using MakeDataParallel = std::unique_ptr<DataParallel> (*)(Device&, Processes&);
void set_data_parallel(MakeDataParallel);
}  // namespace weft
