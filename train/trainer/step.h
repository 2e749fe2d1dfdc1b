// SPDX-License-Identifier: MIT
// One update on the device: micro-batches forward and backward, clip and AdamW behind the last one, a CUDA
// graph for each where possible. Launching waits for nothing: what each micro-batch reports, kernels write to
// memory of the host.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "kernels/step_scalars.h"
#include "models/model.h"
#include "src/config/config.h"
#include "src/graph.h"
#include "train/trainer/data_parallel.h"
#include "train/trainer/device_batch.h"

namespace weft {

// What one update looks like at a context length.
struct StepShape {
  std::int64_t context = 0, micro_batch = 0, accumulation = 0;  // accumulation x (micro_batch, context) ...
  std::int64_t ranks = 1;                                       // ... tokens on each process
  std::int64_t tokens() const { return ranks * accumulation * micro_batch * context; }
  // Of all the sequences of an update, where those of micro-batch `micro` of `rank` begin: the same pieces as
  // those of one process with ranks x accumulation micro-batches.
  std::int64_t first_sequence(std::int64_t micro, std::int64_t rank) const {
    return (micro * ranks + rank) * micro_batch;
  }
};
// The shape in force at `step`: shorter windows come in larger batches, so that the tokens of a step stay the
// same.
StepShape step_shape(const Config&, std::int64_t step);

// The scalars of update `step` (0-based), with `updates` applied before it. `loss_scale`: of an update
// without a LossScale (find_non_finite(); 1 in other types than f16).
StepScalars step_scalars(const Config&, std::int64_t step, std::int64_t updates, double loss_scale);

class TrainStep {
 public:
  // `communicator`: of the config.ranks processes that train together; null when there is one.
  TrainStep(Device&, Model&, ParameterStore&, const Config&, Communicator* communicator = nullptr);
  TrainStep(const TrainStep&) = delete;  // graphs copy from its members
  TrainStep& operator=(const TrainStep&) = delete;

  // Launches update `step` on the sequences that `source` has for it; while the device works, those of the
  // next step are read, where it has the same shape.
  void run(const BatchSource& source, std::int64_t step, const StepScalars&);
  // Clips and updates once more with the gradients of the last step, which run() has made: for its time
  // alone.
  void update();
  // f16: what decides of the loss scale, and of which updates are applied, from the next launch on. Until
  // then it is train.loss_scale, and each is.
  void set_loss_scale(const LossScale&);
  // Of the oldest update launched whose results have not been asked for: loss averaged over its micro-batches
  // on this process. Waits for it.
  StepResults next_result();
  // Of all of them, in order.
  std::vector<StepResults> results();
  // How gradients are summed up over the ranks; null for one process.
  const GradientSum* gradient_sum() const { return gradient_sum_.get(); }

  // Runs `step` again, eagerly and without an update, and names the first tensor that is not finite: weights,
  // then the loss, then gradients in the order in which the backward pass makes them. Text for an error; ""
  // when all are finite. Of this process alone.
  std::string find_non_finite(const BatchSource& source, std::int64_t step, const StepScalars&);

 private:
  struct Graphs {
    GraphedStep first, later, last, update;
  };
  void set_shape(const StepShape&);
  void read(const BatchSource&, std::int64_t step, std::int64_t micro);
  void prepare(const BatchSource&, std::int64_t step, std::int64_t micro, const StepScalars&);
  void upload();
  void apply_loss_scale();
  void forward_backward(bool sum_up);
  void apply_gradients();
  void keep_results(std::int64_t micro);
  void read_oldest();
  std::string first_non_finite(const Tensor& block, const char* what, bool backwards);
  std::string non_finite_loss();

  Device& device_;
  Model& model_;
  ParameterStore& store_;
  const Config& config_;
  Communicator* communicator_;  // null: one process
  std::unique_ptr<GradientSum> gradient_sum_;
  std::int64_t rank_ = 0;
  Ctx ctx_;
  StepShape shape_;
  Tensor scalars_, results_, loss_scale_;  // StepScalars, StepResults, LossScale
  DeviceBatch batch_;
  StepScalars host_scalars_;  // of the micro-batch that comes next, as the following
  HostBatch host_batch_;
  std::int64_t host_step_ = -1, host_micro_ = -1;  // which that is; -1: none
  std::unique_ptr<Graphs> graphs_;
  // Launch n of an update has places n % kTurn: StepResults of its micro-batches, and a mark behind each.
  static constexpr std::int64_t kTurn = 32;
  Tensor history_;  // (kTurn, micro-batches, floats of StepResults), in memory of the host
  std::vector<std::unique_ptr<QueueMark>> marks_;  // kTurn x micro-batches
  std::int64_t launches_ = 0, read_ = 0;           // of updates; those whose places were read
  std::deque<StepResults> unasked_;                // read, oldest first
};

}  // namespace weft
