// SPDX-License-Identifier: MIT
// evaluate: bits per token of a checkpoint on a split, as one JSON line. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  CLI::App app("Evaluates a checkpoint: every token of a split is scored once.", "evaluate");
  weft::EvaluateArguments arguments;
  weft::add_evaluate_options(app, arguments);
  return weft::run_program(app, argc, argv, [&] {
    weft::Progress progress(std::cerr, isatty(STDERR_FILENO) != 0);
    std::cout << weft::run_evaluate(arguments, progress) << std::endl;
  });
}
