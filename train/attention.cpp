// SPDX-License-Identifier: MIT
// attention: q, k and v from an HDF5 file, attended over a pattern, to another. See train/README.md.
#include <iostream>

#include "train/program/options.h"
#include "train/program/program.h"

int main(int argc, char** argv) {
  weft::AttentionFileOptions options;
  const auto add_options = [&](CLI::App& app) { weft::add_attention_options(app, options); };
  const auto work = [&] { weft::run_attention_file(options, std::cout); };
  return weft::run_program(
      {"attention", "Sparse attention, forward and backward, on arrays in an HDF5 file.", add_options, work},
      argc, argv);
}
