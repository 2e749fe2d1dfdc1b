// SPDX-License-Identifier: MIT
// inspect: parameters, memory and FLOPs of a config; pictures of its attention patterns.
#include <iostream>

#include "train/inspect_report.h"
#include "train/program.h"

int main(int argc, char** argv) {
  weft::InspectOptions options;
  CLI::App app{"What a config means: parameters, memory, FLOPs, attention patterns", "inspect"};
  app.add_option("--config", options.config, "a path, or a name in configs/")->required();
  app.add_option("--set", options.overrides, "a.b=c: replaces a value of the config")
      ->allow_extra_args(false);
  app.add_option("--length", options.length, "length of the sequences looked at (default: the context)");
  app.add_option("--pattern", options.pattern, "LAYER,HEAD: draws the pattern of one head");
  app.add_option("--position", options.position, "the position whose receptive field --png shows");
  app.add_option("--png", options.png, "FILE: receptive field and connectivity matrix as an image");
  app.add_option("--mask-out", options.mask_out, "FILE.npy: the boolean matrix, row = query");
  return weft::run_program(app, argc, argv, [&] { weft::inspect(options, std::cout); });
}
