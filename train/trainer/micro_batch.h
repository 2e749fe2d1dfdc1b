// SPDX-License-Identifier: MIT
// `train --batch`: sequences at a time. train.accumulation follows; the tokens of an update stay.
#pragma once

#include "src/config/config.h"
#include "src/device.h"

namespace weft {

struct MicroBatch {
  std::int64_t accumulation = 1;  // for train.accumulation
  std::string text;               // for people: what was chosen, and why
};

// `wish`: a number of sequences, or "auto": the most whose planned memory (with an evaluation between steps,
// and `replay`) fits. Throws Error when it is neither, does not divide the update, or not even one sequence
// fits.
MicroBatch choose_micro_batch(const Config&, const std::string& wish, const Device&, bool replay = false);
// As the checkpoint was trained with, so that sums keep their order; nothing where it does not divide the
// batch.
std::optional<MicroBatch> micro_batch_of(const std::string& checkpoint, const Config&);

}  // namespace weft
