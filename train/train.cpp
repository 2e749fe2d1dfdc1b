// SPDX-License-Identifier: MIT
// train: a config in, a trained model in a run folder out. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/inspect/event_file.h"
#include "train/inspect/run_page.h"
#include "train/program/options.h"
#include "train/program/program.h"
#include "train/ranks/ranks.h"
#include "train/trainer/trainer.h"

namespace weft {
namespace {

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  int gpus = 0;                        // processes to start (train/ranks/ranks.h); so below
  bool no_report = false, tensorboard = false;
  TrainOptions options;
};

void add_train_options(CLI::App& app, TrainArguments& a) {
  add_config(app, a.config, a.overrides)->required();
  app.add_option_function<std::vector<std::string>>(
         "--resume",
         [&a](const std::vector<std::string>& path) { a.options.resume = path.empty() ? "" : path[0]; },
         "go on from latest.h5 of the run folder, or from this checkpoint")
      ->type_name("[PATH]")
      ->expected(0, 1);
  app.add_flag(
      "--allow-changes", a.options.allow_changes,
      "with --resume: keys may differ that change how sums round; it says which, and what they change");
  app.add_option("--out", a.options.out, "run folder; runs/<config name> when not given");
  add_device(app, a.options.device);
  add_gpus(app, a.gpus);
  app.add_flag("--rank-log", a.options.rank_log, "at each log line, a line of every process, too");
  app.add_option(
      "--batch", a.options.batch,
      "sequences at a time, the rest of an update by accumulation: a number, or auto: the most that "
      "the device has memory for; a resumed run may have other ones then");
  app.add_flag("--no-report", a.no_report, "no report.html and no samples at evaluations");
  app.add_flag("--tensorboard", a.tensorboard,
               "also write <run folder>/tensorboard/, for tensorboard --logdir");
  app.add_option("--max-steps", a.options.max_steps, "stop and save when this step is done")
      ->check(at_least(0));
  app.add_option("--max-minutes", a.options.max_minutes, "stop and save after this long")->check(at_least(0));
  app.footer(
      "SIGINT and SIGTERM finish the step at hand (one that takes longer than two seconds is given up), save "
      "latest.h5 and leave with exit code 0; a second one ends at once.\n"
      "Examples:\n"
      "  train --config tiny.yaml\n"
      "  train --config novels_12l.yaml --set train.batch=8 --set train.accumulation=2 --out runs/large\n"
      "  train --config enwik8.yaml --set train.batch_tokens=393216 --batch auto\n"
      "  train --config tiny.yaml --resume\n"
      "  train --config enwik8.yaml --gpus 8\n"
      "  torchrun --no-python --nproc-per-node 8 train --config enwik8.yaml\n"
      "  mpirun -n 8 train --config enwik8.yaml\n"
      "  train --config tiny.yaml --resume runs/tiny/step_00001000.h5 --set train.steps=4000");
}

}  // namespace
}  // namespace weft

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
      if (arguments.tensorboard)
        arguments.options.log_to = [](const std::string& folder) {
          return [file = weft::EventFile(folder)](const weft::StepMetrics& m) { file.append(m); };
        };
      if (!arguments.no_report) arguments.options.on_evaluation = weft::keep_report();
      weft::Trainer(config, arguments.options, progress, group).run();
    });
  };
  return weft::run_program({"train", "Trains a model.", add_options, work, true}, argc, argv);
}
