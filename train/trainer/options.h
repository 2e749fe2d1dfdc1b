// SPDX-License-Identifier: MIT
// What a caller of the trainer chooses besides the config.
#pragma once

#include "kernels/dtype.h"
#include "train/trainer/extension.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {
struct TrainOptions {
  // "": latest.h5 of the run folder, otherwise a checkpoint
  std::optional<std::string> resume = {};
  std::string init = "";  // a file of weights to start from, or a run folder
  std::string out = "";   // "": runs/<config name>
  std::string device = "auto";
  std::string batch = "";  // train/trainer/report.h; "": train.accumulation as it is
  int64_t max_steps = 0;   // stop and save when this step is done; 0: train.steps
  double max_minutes = 0;  // stop and save after this long; 0: no limit
  // resume although other keys change rounding (OnResume::asked)
  bool allow_changes = false;
  std::optional<DType> dtype = {};      // of activations; nothing: dtype_on(), f32 on a CPU
  std::string program = "train";        // how this program was called
  std::vector<TrainHooks> hooks = {};   // of parts
  std::vector<std::string> kept = {};   // words of the command line that the run folder keeps
  std::vector<std::string> notes = {};  // lines for people: what is resumed, and how
};
}  // namespace weft
