// SPDX-License-Identifier: MIT
// What the programs share around their work: command lines, errors, exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "train/sampler.h"
#include "train/trainer.h"

namespace weft {

// Parses the command line and does the work. Exit code 0; 1 after "error: ..." on one line of stderr,
// whatever went wrong, the command line included. Adds --version.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work);

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  TrainOptions options;
};
void add_train_options(CLI::App&, TrainArguments&);

struct EvaluateArguments {
  std::string checkpoint, data, split = "test", device = "auto";  // data "": the file named in the checkpoint
  std::int64_t min_context = 0;
  std::int64_t batch = 0;  // 0: that of training
  bool ema = false;
};
void add_evaluate_options(CLI::App&, EvaluateArguments&);
// The JSON line that `evaluate` prints. Progress goes to `progress`.
std::string run_evaluate(const EvaluateArguments&, Progress& progress);

struct SampleArguments {
  std::string checkpoint, prompt, prompt_file, out, device = "auto";
  SampleOptions options;
  bool ema = false, stats = false;
};
void add_sample_options(CLI::App&, SampleArguments&);
// Text to `text` (or to the file that --out names), statistics to `notes`.
void run_sample(SampleArguments, std::ostream& text, std::ostream& notes);

}  // namespace weft
