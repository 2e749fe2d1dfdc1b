// SPDX-License-Identifier: MIT
// The work of the program `evaluate`.
#pragma once

#include "data/dataset.h"
#include "src/processes.h"
#include "train/evaluation/extension.h"
#include "train/program/progress.h"

#include <memory>
#include <string>
#include <vector>

namespace weft {
struct EvaluateArguments {
  // data "": the file named in the checkpoint
  std::string checkpoint, data, split = "test", device = "auto";
  int64_t min_context = 0;
  int64_t batch = 0;    // 0: that of training
  std::string weights;  // "ema", "last"; "": ema where it was kept
  bool decode = false;  // as texts are sampled: a position at a time
  std::string losses;   // a file to write
  std::vector<std::shared_ptr<EvaluateExtension>> extensions = {};  // of parts
};

// A JSON line for each evaluation to `out`, a sentence to `progress`. Collective; rank 0 writes the
// files.
void run_evaluate(const EvaluateArguments&, Processes&, std::ostream& out, Progress& progress);
}  // namespace weft
