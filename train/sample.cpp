// SPDX-License-Identifier: MIT
// sample: text from a checkpoint, as it comes. See train/README.md.
#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  weft::SampleArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_sample_options(app, arguments); };
  const auto work = [&] { weft::run_sample(arguments, std::cout, std::cerr); };
  return weft::run_program({"sample", "Samples from a checkpoint.", add_options, work}, argc, argv);
}
