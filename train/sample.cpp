// SPDX-License-Identifier: MIT
// sample: text from a checkpoint, as it comes; images and sound as files. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  weft::SampleArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_sample_options(app, arguments); };
  const auto work = [&] {
    weft::Progress progress(std::cerr, isatty(STDERR_FILENO) != 0);
    weft::run_sample(arguments, std::cout, progress);
  };
  return weft::run_program({"sample", "Samples from a checkpoint.", add_options, work}, argc, argv);
}
