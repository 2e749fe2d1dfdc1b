// SPDX-License-Identifier: MIT
// report.html: what a run folder holds, as one page for people, without scripts and without a
// network.
#pragma once

#include "train/trainer/trainer.h"

#include <functional>
#include <string>
#include <vector>

namespace weft {
// Curves by step, token or second, pictures of the patterns, config, machine and samples of one
// run; of several runs their curves together, then each. Says so where validation rises while
// training falls. Reads config.yaml, metrics.jsonl, about.txt and samples/ of each
// folder; a file that is missing is left out, but metrics.jsonl. Throws Error for a folder that is
// none of a run.
std::string run_page(const std::vector<std::string>& folders);

// Run by Trainer after each evaluation: keeps about.txt, draws a sample of the model (text,
// images or sound) into samples/, and writes report.html anew. Drawing is given up for good when it
// takes longer than ten seconds.
std::function<void(const Evaluated&)> keep_report();
}  // namespace weft
