// SPDX-License-Identifier: MIT
// A run folder as an argument of a program: runs/my stands for its checkpoint, config and options.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft {
struct Config;

// A checkpoint to evaluate, sample or convert.
struct ChosenCheckpoint {
  std::string path;
  std::string text;  // which one of a folder was taken; "": a file was named
};

// For an Error about a name that is missing or holds no run: "; there are runs/a, runs/b", or "".
// Checkpoints beside a missing file, else runs in the folder, beside it or in runs/.
std::string runs_near(const std::string& name);

// Of a run folder best.h5, or latest.h5 where there is no best. Any other name stands for itself.
// Throws Error for a folder without either, and for a name that does not exist.
ChosenCheckpoint choose_checkpoint(const std::string& name);

// ---- what train --resume continues

struct ResumedRun {
  std::string checkpoint;
  std::string config;     // the file to read; "": the text in the checkpoint
  bool is_own = true;     // that config is the run's: it holds all that was set
  std::string out;        // the run folder; "": runs/<name of the config>
  std::string text = "";  // how the run was found, where the command line does not say it
  std::string kept_in{};  // the file with the run's options, of write_options()
  // As written there, "--set=train.steps=300"; empty where there is none.
  std::vector<std::string> options = {};
};

// The arguments of --config, --out, --set and --resume, "" where they have none. Without any, the
// run in runs/ that saved last. Throws Error where there is nothing to resume.
ResumedRun find_run(const std::string& config, const std::string& out,
                    const std::vector<std::string>& overrides, const std::string& resume);
Config config_of(const ResumedRun&, const std::vector<std::string>& overrides);

// A line for each word. A run folder keeps them beside its config.
void write_options(const std::string& path, const std::vector<std::string>& words);
// The options that a command line gives, a word each, but for `left_out`.
std::vector<std::string> given_options(const CLI::App&, const std::vector<std::string>& left_out);
// `before` and `now`; of several words of one option, or --set of one key, the last.
std::vector<std::string> merged_options(const std::vector<std::string>& before,
                                        const std::vector<std::string>& now);
// "--batch from 2 to 4": the options besides --set that differ.
std::vector<std::string> option_changes(const std::vector<std::string>& before,
                                        const std::vector<std::string>& now);
}  // namespace weft
