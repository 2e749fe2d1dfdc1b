// SPDX-License-Identifier: MIT
// train: a config in, a trained model in a run folder out. See train/README.md.
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "train/program/launcher.h"
#include "train/program/options.h"
#include "train/program/program.h"
#include "train/program/run_argument.h"
#include "train/trainer/trainer.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

using namespace weft;

struct TrainArguments {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  TrainOptions options;
  std::vector<HooksAsked> of_parts;
  CLI::App* app = nullptr;
  ResumedRun run = {};  // with --resume
};

static std::string folder_trouble(const std::string& name) {
  std::error_code error;
  static_cast<void>(std::filesystem::status(name, error));
  if (name.empty()) return "expected the name of a folder, got an empty one";
  return error && error != std::errc::no_such_file_or_directory ? "no folder: " + error.message()
                                                                : "";
}

static void add_options_of_train(CLI::App& app, TrainArguments& a) {
  a.app = &app;
  add_config(app, a.config, a.overrides);
  app.add_option_function<std::vector<std::string>>(
         "--resume",
         [&a](const std::vector<std::string>& path) {
           a.options.resume = path.empty() ? "" : path[0];
         },
         "go on with the run in this folder, with its config, options and every --set, or from "
         "this "
         "checkpoint; with neither PATH nor --config, with the run in runs/ that saved last")
      ->type_name("[PATH]")
      ->expected(0, 1);
  app.add_option("--init", a.options.init,
                 "start from these weights, of a run folder, of a checkpoint or of a file with "
                 "weights alone; data, rate, pattern and a longer context may be new")
      ->excludes("--resume");
  app.add_flag("--allow-changes", a.options.allow_changes,
               "with --resume: keys may differ that change how sums round; it says which, and what "
               "they change");
  app.add_option("--out", a.options.out, "run folder; runs/<config name> when not given")
      ->check(CLI::Validator(folder_trouble, ""));
  add_device(app, a.options.device);
  add_no_verify(app);
  launcher().add_options(app);
  app.add_option("--batch", a.options.batch,
                 "sequences at a time, the rest of an update by accumulation: a number, or auto: "
                 "the most that "
                 "the device has memory for; a resumed run may have other ones then");
  app.add_option("--max-steps", a.options.max_steps, "stop and save when this step is done")
      ->check(at_least(0));
  app.add_option("--max-minutes", a.options.max_minutes, "stop and save after this long")
      ->check(at_least(0));
  app.footer(
      "SIGINT, SIGTERM and SIGHUP finish the step at hand (one that takes longer than two seconds "
      "is given "
      "up), save "
      "latest.h5 and leave with exit code 0; a second one ends at once.\n"
      "Examples:\n"
      "  train --config tiny.yaml\n"
      "  train --config novels_12l.yaml --set train.batch=8 --set train.accumulation=2 --out "
      "runs/large\n"
      "  train --config enwik8.yaml --set train.batch_tokens=393216 --batch auto\n"
      "  train --resume runs/tiny\n"
      "  train --config tiny.yaml --init runs/novels/best.h5 --set train.learning_rate=1e-4 --out "
      "runs/tuned\n"
      "  train --resume runs/tiny/step_00001000.h5 --set train.steps=4000 --out runs/branch");
  for (const AddTrainOptions& add : train_options()) a.of_parts.push_back(add(app));
}

// Finds the run to resume. Returns the words of its options that the command line may leave out.
static std::vector<std::string> kept_options(TrainArguments& a) {
  if (!a.options.resume) {
    if (a.config.empty()) fail("--config is required, or --resume RUN (try --help)");
    return {};
  }
  a.run = find_run(a.config, a.options.out, a.overrides, *a.options.resume);
  std::vector<std::string> words;
  for (const std::string& word : a.run.options) {
    // the run's own config holds them
    const bool has_it = a.run.is_own && word.starts_with("--set=");
    if (!has_it && launcher().keeps(word)) words.push_back(word);
  }
  return words;
}

// What a resumed run takes over, and what is new, as lines for people.
static void note_options(TrainArguments& a) {
  // these hold for one start
  const std::vector<std::string> left_out = {"--config",        "--resume",     "--init",
                                             "--out",           "--no-verify",  "--max-steps",
                                             "--allow-changes", "--max-minutes"};
  const std::vector<std::string> now = merged_options({}, given_options(*a.app, left_out));
  std::vector<std::string> taken;
  for (const std::string& word : a.run.options)
    if (std::ranges::count(now, word) > 0) taken.push_back(word);
  std::vector<std::string>& notes = a.options.notes;
  if (!a.run.text.empty()) notes.push_back("resume      " + a.run.text);
  if (!taken.empty())
    notes.push_back(str("options     ", joined(taken, " "), " (", a.run.kept_in, ")"));
  if (std::filesystem::exists(a.run.kept_in))
    for (const std::string& change : option_changes(a.run.options, now))
      notes.push_back("changed     " + change);
  a.options.kept = merged_options(a.run.options, now);
}

static Config read_config(TrainArguments& a) {
  if (!a.options.resume) return load_config(a.config, a.overrides);
  a.options.resume = a.run.checkpoint;
  a.options.out = a.run.out;
  return config_of(a.run, a.overrides);
}

int main(int argc, char** argv) {
  TrainArguments arguments;
  Config config;
  const auto add_options = [&](CLI::App& app) { add_options_of_train(app, arguments); };
  const auto config_text = [&] {
    config = read_config(arguments);
    return to_yaml(config) + arguments.run.checkpoint;
  };
  arguments.options.program = argv[0];
  const auto work = [&] {
    note_options(arguments);
    // a log that nobody reads is not the end of training (progress.h)
    std::signal(SIGPIPE, SIG_IGN);
    TrainOptions& options = arguments.options;
    for (const HooksAsked& asked : arguments.of_parts)
      if (const auto hooks = asked()) options.hooks.push_back(*hooks);
    launcher().run(options.device, config_text, [&](Processes& group) {
      Progress progress = first_progress(group, std::cout, STDOUT_FILENO);
      Trainer(config, options, progress, group).run();
    });
  };
  const auto kept = [&] { return kept_options(arguments); };
  return run_program({"train", "Trains a model.", add_options, work, true, kept}, argc, argv);
}
