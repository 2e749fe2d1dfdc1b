// SPDX-License-Identifier: MIT
// `train --batch`: how many sequences go through the model at a time. The tokens of an update stay what the
// config says; train.accumulation follows.
#pragma once

#include <optional>
#include <string>

#include "src/config/config.h"
#include "src/device.h"

namespace weft {

struct MicroBatch {
  std::int64_t accumulation = 1;  // for train.accumulation
  std::string text;               // for people: what was chosen, and why
};

// `wish`: "auto", the most sequences of full context whose planned memory (with an evaluation between steps)
// fits into what the device has free, or a number of sequences. Throws Error when it is neither, when it does
// not divide the update, or when not even one sequence fits.
MicroBatch choose_micro_batch(const Config&, const std::string& wish, const Device&);
// What the checkpoint of a run that goes on was trained with: other micro-batches would sum in another order.
// Nothing where that many do not divide the batch of so many processes.
std::optional<MicroBatch> micro_batch_of(const std::string& checkpoint, const Config&);

}  // namespace weft
