// SPDX-License-Identifier: MIT
// train: a config in, a trained model in a run folder out. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/options.h"
#include "train/program.h"

int main(int argc, char** argv) {
  weft::TrainArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_train_options(app, arguments); };
  const auto work = [&] {
    weft::Progress progress(std::cout, isatty(STDOUT_FILENO) != 0);
    const weft::Config config = weft::load_config(arguments.config, arguments.overrides);
    weft::ProcessGroup alone(weft::World{}, "");
    weft::Trainer(config, arguments.options, progress, alone).run();
  };
  return weft::run_program({"train", "Trains a model.", add_options, work}, argc, argv);
}
