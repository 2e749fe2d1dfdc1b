// SPDX-License-Identifier: MIT
// sample: text from a checkpoint, as it comes. See train/README.md.
#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  CLI::App app("Samples from a checkpoint.", "sample");
  weft::SampleArguments arguments;
  weft::add_sample_options(app, arguments);
  return weft::run_program(app, argc, argv, [&] { weft::run_sample(arguments, std::cout, std::cerr); });
}
