// SPDX-License-Identifier: MIT
// train: a config in, a trained model in a run folder out. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/program/options.h"
#include "train/program/program.h"
#include "train/ranks/ranks.h"

int main(int argc, char** argv) {
  weft::TrainArguments arguments;
  weft::Config config;
  const auto add_options = [&](CLI::App& app) { weft::add_train_options(app, arguments); };
  const auto read_config = [&] {
    config = weft::load_config(arguments.config, arguments.overrides);
    return weft::to_yaml(config);
  };
  const auto work = [&] {
    weft::with_ranks({arguments.gpus, arguments.options.device}, read_config, [&](weft::ProcessGroup& group) {
      weft::Progress progress = weft::rank_progress(group, std::cout, STDOUT_FILENO);
      weft::Trainer(config, arguments.options, progress, group).run();
    });
  };
  return weft::run_program({"train", "Trains a model.", add_options, work, true}, argc, argv);
}
