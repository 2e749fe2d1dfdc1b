// SPDX-License-Identifier: MIT
// evaluate: bits per token of a checkpoint on a split, as one JSON line. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "src/files/checkpoint.h"
#include "train/program/options.h"
#include "train/program/program.h"
#include "train/ranks/ranks.h"

int main(int argc, char** argv) {
  weft::EvaluateArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_evaluate_options(app, arguments); };
  const auto work = [&] {
    weft::with_ranks(
        {arguments.gpus, arguments.device}, [&] { return weft::checkpoint_config(arguments.checkpoint); },
        [&](weft::ProcessGroup& group) {
          weft::Progress progress = weft::rank_progress(group, std::cerr, STDERR_FILENO);
          weft::run_evaluate(arguments, group, weft::rank_output(group, std::cout), progress);
        });
  };
  const char* purpose = "Evaluates a checkpoint: every token of a split is scored once.";
  return weft::run_program({"evaluate", purpose, add_options, work, true}, argc, argv);
}
