// SPDX-License-Identifier: MIT
// sample: text from a checkpoint, token by token; images and sound as files. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "src/files/checkpoint.h"
#include "train/program/options.h"
#include "train/program/program.h"
#include "train/ranks/ranks.h"

int main(int argc, char** argv) {
  weft::SampleArguments arguments;
  const auto add_options = [&](CLI::App& app) { weft::add_sample_options(app, arguments); };
  const auto work = [&] {
    weft::with_ranks(
        {arguments.gpus, arguments.device}, [&] { return weft::checkpoint_config(arguments.checkpoint); },
        [&](weft::ProcessGroup& group) {
          weft::Progress progress = weft::rank_progress(group, std::cerr, STDERR_FILENO);
          weft::run_sample(arguments, group, weft::rank_output(group, std::cout), progress);
        });
  };
  return weft::run_program({"sample", "Samples from a checkpoint.", add_options, work, true}, argc, argv);
}
