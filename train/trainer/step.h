// SPDX-License-Identifier: MIT
// The training step. Each micro-batch runs forward and backward; after the last one, gradients are
// all-reduced, clipped and applied. On a GPU each micro-batch is a CUDA graph from its third run
// on.
#pragma once

#include "data/batch_source.h"
#include "src/optimizer/optimizer.h"
#include "train/trainer/data_parallel.h"
#include "train/trainer/run_ahead.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// Each process takes accumulation micro-batches of (micro_batch, context) tokens.
struct StepShape {
  int64_t context = 0, micro_batch = 0, accumulation = 0, ranks = 1;

  int64_t tokens() const { return ranks * accumulation * micro_batch * context; }

  // First sequence in the update. One process with ranks x accumulation micro-batches takes the
  // same pieces.
  int64_t first_sequence(int64_t micro, int64_t rank) const {
    return (micro * ranks + rank) * micro_batch;
  }
};

// The shape in force at `step`. Shorter windows come in larger batches: the tokens of a step stay
// the same.
StepShape step_shape(const Config&, int64_t step);

// The scalars of update `step`, from 0. In f16 the device corrects them
// (kernels/optimizer/loss_scale.h).
StepScalars step_scalars(const Config&, int64_t step);

class TrainStep {
 public:
  // `shared`: of the config.ranks processes that train together; null when there is one. It
  // outlives this.
  TrainStep(Device&, Model&, ParameterStore&, const Config&, SharedStep* shared = nullptr);
  TrainStep& operator=(TrainStep&&) = delete;  // nor copied: graphs copy from its members

  // Launches update `step`, and reads the next step's sequences while the device works. `between`
  // runs before each micro-batch but the first; when it throws, or Interrupted on the CPU, no
  // parameter has changed.
  void run(const BatchSource& source, int64_t step, const std::function<void()>& between = {});

  // The same, for an update that runs again: results() leaves it out, and no next step is read.
  void rehearse(const BatchSource& source, int64_t step, const std::function<void()>& between) {
    launch_update(source, step, between, false);
  }

  // Clips and updates once more with the last gradients, to be timed.
  void update() {
    graphs_->update.run([&] { apply_gradients(); });
  }

  // The loss scale of f16. It is train.loss_scale with nothing counted until it is set.
  void set_loss_scale(const LossScale&);
  LossScale loss_scale();  // waits for the device

  // Results of updates, in order; both wait (train/trainer/run_ahead.h).
  StepResults next_result() { return ahead_.next_result(); }

  std::vector<StepResults> results() { return ahead_.results(); }

  bool diverged() const { return ahead_.diverged(); }

  Device& device() { return device_; }

  ParameterStore& store() { return store_; }

  SharedStep* shared() { return shared_; }  // null for one process

  // StepResults and, in f16, LossScale, else empty: what an update changes besides the store.
  const Tensor& results_on_device() const { return results_; }

  const Tensor& loss_scale_on_device() const { return loss_scale_; }

  // Runs `step` again, eagerly and without an update, on this process; f16 keeps this loss scale.
  // Names the first tensor that is not finite: weights, loss, then gradients in backward order; ""
  // when all are.
  std::string find_non_finite(const BatchSource& source, int64_t step, double loss_scale);

 private:
  struct Graphs {
    GraphedStep first, later, last, update;
  };

  void launch_update(const BatchSource&, int64_t step, const std::function<void()>& between,
                     bool counted);
  void set_shape(const StepShape&);
  void read(const BatchSource&, int64_t step, int64_t micro);
  void prepare(const BatchSource&, int64_t step, int64_t micro);
  void upload();
  void forward_backward(bool shared);
  void apply_gradients();
  std::string first_non_finite(const Tensor& block, const char* what, bool backwards);
  std::string non_finite_loss();

  Device& device_;
  Model& model_;
  ParameterStore& store_;
  const Config& config_;
  SharedStep* shared_;
  int64_t rank_ = 0;
  Ctx ctx_;
  StepShape shape_;
  Tensor scalars_, results_, loss_scale_;  // StepScalars, StepResults, LossScale
  DeviceBatch batch_;
  StepScalars host_scalars_;  // of the micro-batch that comes next, as the following
  HostBatch host_batch_;
  int64_t host_step_ = -1, host_micro_ = -1;  // which that is; -1: none
  std::unique_ptr<Graphs> graphs_;
  RunAhead ahead_;
};
}  // namespace weft
