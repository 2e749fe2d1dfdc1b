// SPDX-License-Identifier: MIT
// What an update looks like: its micro-batches, and the scalars that its kernels read.
#pragma once

#include <cstdint>

#include "kernels/step_scalars.h"
#include "src/config/config.h"

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
StepShape step_shape(const Config&, std::int64_t step);

// The scalars of update `step`, from 0. In f16 the device corrects them (kernels/optimizer/loss_scale.h).
StepScalars step_scalars(const Config&, std::int64_t step);

}  // namespace weft
