// SPDX-License-Identifier: MIT
// evaluate: bits per token of a checkpoint on a split, as one JSON line. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  weft::EvaluateArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_evaluate_options(app, arguments); };
  const auto work = [&] {
    weft::Progress progress(std::cerr, isatty(STDERR_FILENO) != 0);
    weft::run_evaluate(arguments, std::cout, progress);
  };
  const char* purpose = "Evaluates a checkpoint: every token of a split is scored once.";
  return weft::run_program({"evaluate", purpose, add_options, work}, argc, argv);
}
