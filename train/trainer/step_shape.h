// SPDX-License-Identifier: MIT
// What an update looks like: its micro-batches, and the scalars that its kernels read.
#pragma once

#include "src/optimizer.h"

namespace weft {

// Each process takes accumulation micro-batches of (micro_batch, context) tokens.
struct StepShape {
  std::int64_t context = 0, micro_batch = 0, accumulation = 0, ranks = 1;
  std::int64_t tokens() const { return ranks * accumulation * micro_batch * context; }
  // First sequence in the update. One process with ranks x accumulation micro-batches takes the same pieces.
  std::int64_t first_sequence(std::int64_t micro, std::int64_t rank) const {
    return (micro * ranks + rank) * micro_batch;
  }
};
// The shape in force at `step`. Shorter windows come in larger batches: the tokens of a step stay the same.
inline StepShape step_shape(const Config& config, std::int64_t step) {
  const std::int64_t context = context_at(config.train, config.model.context, step);
  const std::int64_t sequences = config.train.batch * config.model.context / context;
  const std::int64_t accumulation = config.train.accumulation, ranks = config.ranks;
  const StepShape shape{context, sequences / (accumulation * ranks), accumulation, ranks};
  WEFT_CHECK(shape.tokens() == config.train.batch * config.model.context,
             "train.batch x model.context tokens must be a whole number of windows of ", context,
             " tokens in ", accumulation * ranks, " micro-batches");
  return shape;
}

// The scalars of update `step`, from 0. In f16 the device corrects them (kernels/optimizer/loss_scale.h).
inline StepScalars step_scalars(const Config& config, std::int64_t step) {
  const TrainConfig& train = config.train;
  StepScalars s;
  s.seed = config.seed;
  s.draw = static_cast<std::uint64_t>(step);
  const double rate = learning_rate(train, step);
  s.learning_rate = static_cast<float>(rate);
  s.muon_learning_rate = static_cast<float>(rate / train.learning_rate * train.muon_learning_rate);
  set_corrections(s, train.beta1, train.beta2, train.ema_decay, train.muon_momentum, step + 1);
  s.loss_gradient = static_cast<float>(1.0 / static_cast<double>(train.accumulation * config.ranks));
  return s;
}

}  // namespace weft
