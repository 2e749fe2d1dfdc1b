// SPDX-License-Identifier: MIT
// train: a config in, a trained model in a run folder out. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  CLI::App app("Trains a model.", "train");
  weft::TrainArguments arguments;
  weft::add_train_options(app, arguments);
  return weft::run_program(app, argc, argv, [&] {
    weft::Progress progress(std::cout, isatty(STDOUT_FILENO) != 0);
    const weft::Config config = weft::load_config(arguments.config, arguments.overrides);
    weft::Trainer(config, arguments.options, progress).run();
  });
}
