// SPDX-License-Identifier: MIT
// bench: times kernels (checked first) and whole training steps. Rows of text, or JSON objects with --json.
#include <iostream>

#include "train/program/options.h"
#include "train/program/program.h"

int main(int argc, char** argv) {
  weft::BenchArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_bench_commands(app, arguments); };
  const auto work = [&] { weft::run_bench(arguments, std::cout, std::cerr); };
  return weft::run_program({"bench", "Times what training is made of", add_options, work, true}, argc, argv);
}
