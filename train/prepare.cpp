// SPDX-License-Identifier: MIT
// prepare: raw data in, a token file out. See data/README.md.
#include <iostream>

#include "train/program/options.h"
#include "train/program/program.h"

int main(int argc, char** argv) {
  weft::PrepareArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_prepare_commands(app, arguments); };
  const auto work = [&] { std::cout << weft::run_prepare(arguments) << '\n'; };
  const char* purpose = "Makes the HDF5 files that training reads.";
  return weft::run_program({"prepare", purpose, add_options, work}, argc, argv);
}
