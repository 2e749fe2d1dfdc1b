// SPDX-License-Identifier: MIT
// bench: checks and times kernels. Rows of text, or JSON objects with --json.
#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  weft::BenchKernelsOptions options;
  const auto add_options = [&](CLI::App& app) { weft::add_bench_options(app, options); };
  const auto work = [&] { weft::bench_kernels(options, std::cout, std::cerr); };
  return weft::run_program({"bench", "Times what training is made of", add_options, work}, argc, argv);
}
