// SPDX-License-Identifier: MIT
// The work of the program `evaluate`.
#pragma once

#include <iosfwd>

#include "src/ranks/process_group.h"
#include "train/program/progress.h"

namespace weft {

struct EvaluateArguments {
  std::string checkpoint, data, split = "test", device = "auto";  // data "": the file named in the checkpoint
  int gpus = 0;
  std::int64_t min_context = 0;
  std::int64_t batch = 0;       // 0: that of training
  std::string weights;          // "ema", "last"; "": ema where it was kept
  std::string augmentations;    // "all", or one combination: "rotation=1,color=2"
  std::string heatmap, losses;  // files to write
};
// A JSON line for each evaluation to `out`, a sentence to `progress`. Collective; rank 0 writes the files.
void run_evaluate(const EvaluateArguments&, ProcessGroup&, std::ostream& out, Progress& progress);

}  // namespace weft
