// SPDX-License-Identifier: MIT
// Shapes and scalars of an update.
#include "train/trainer/step_shape.h"

#include "kernels/view.h"
#include "src/optimizer.h"

namespace weft {

StepShape step_shape(const Config& config, std::int64_t step) {
  const std::int64_t context = context_at(config.train, config.model.context, step);
  const std::int64_t sequences = config.train.batch * config.model.context / context;
  const std::int64_t accumulation = config.train.accumulation, ranks = config.ranks;
  const StepShape shape{context, sequences / (accumulation * ranks), accumulation, ranks};
  WEFT_CHECK(shape.tokens() == config.train.batch * config.model.context,
             "train.batch x model.context tokens must be a whole number of windows of ", context,
             " tokens in ", accumulation * ranks, " micro-batches");
  return shape;
}

StepScalars step_scalars(const Config& config, std::int64_t step) {
  const TrainConfig& train = config.train;
  StepScalars s;
  s.seed = config.seed;
  s.draw = static_cast<std::uint64_t>(step);
  s.learning_rate = static_cast<float>(learning_rate(train, step));
  set_corrections(s, train.beta1, train.beta2, train.ema_decay, step + 1);
  s.loss_gradient = static_cast<float>(1.0 / static_cast<double>(train.accumulation * config.ranks));
  return s;
}

}  // namespace weft
