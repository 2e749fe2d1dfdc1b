// SPDX-License-Identifier: MIT
// prepare: raw data in, a token file out. See data/README.md.
#include <iostream>

#include "data/prepare.h"
#include "train/program.h"

int main(int argc, char** argv) {
  CLI::App app("Makes the HDF5 files that training reads.", "prepare");
  weft::PrepareArguments arguments;
  weft::add_prepare_commands(app, arguments);
  return weft::run_program(app, argc, argv, [&] { std::cout << weft::run_prepare(app, arguments) << '\n'; });
}
