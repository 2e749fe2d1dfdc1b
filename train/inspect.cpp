// SPDX-License-Identifier: MIT
// inspect: parameters, memory and FLOPs of a config; pictures of its attention patterns.
#include <iostream>

#include "train/program/options.h"
#include "train/program/program.h"

int main(int argc, char** argv) {
  weft::InspectOptions options;
  const auto add_options = [&](CLI::App& app) { weft::add_inspect_options(app, options); };
  const auto work = [&] { weft::inspect(options, std::cout); };
  return weft::run_program(
      {"inspect", "What a config means: parameters, memory, FLOPs, attention patterns", add_options, work},
      argc, argv);
}
