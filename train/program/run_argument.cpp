// SPDX-License-Identifier: MIT
#include "train/program/run_argument.h"

#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/files/checkpoint.h"
#include "src/files/files.h"
#include "src/parts/parts.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
constexpr const char *kRuns = "runs", *kLatest = "latest.h5", *kBest = "best.h5",
                     *kConfig = "config.yaml", *kOptions = "options.txt";

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// The system says that there is nothing of this name.
bool is_missing(const fs::path& path) {
  std::error_code none;
  return fs::status(path, none).type() == fs::file_type::not_found;
}

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code none;
  return fs::equivalent(a, b, none);
}

// The folders in `folder` that hold a run, the one that saved last first.
std::vector<std::string> runs_in(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    const auto saved = fs::last_write_time(at->path() / kLatest, none);
    if (!none) found.emplace_back(saved, at->path().lexically_normal().string());
  }
  std::ranges::sort(found, std::greater());
  std::vector<std::string> names;
  for (const auto& [saved, name] : found) names.push_back(name);
  return names;
}

// "; there are runs/a, runs/b", or "".
std::string hint(std::vector<std::string> runs) {
  constexpr std::size_t kNamed = 6;
  if (runs.empty()) return "";
  const std::size_t all = runs.size();
  if (all > kNamed) runs.resize(kNamed);
  return (all == 1 ? "; there is " : "; there are ") + joined(runs) +
         (all > kNamed ? str(" and ", all - kNamed, " more") : "");
}

std::string newest_run() {
  const std::vector<std::string> runs = runs_in(kRuns);
  if (runs.empty())
    fail("nothing to resume: no folder in ", kRuns, "/ holds a run (", kLatest,
         "); name one with --resume FOLDER");
  return runs[0];
}

std::string option_of(const std::string& word) { return word.substr(0, word.find('=')); }

// "--set=train.steps" of "--set=train.steps=300"; another option by its name.
std::string slot_of(const std::string& word) {
  const std::string option = option_of(word);
  return option == "--set" ? word.substr(0, word.find('=', option.size() + 1)) : option;
}

// A word has no line end: "\n" stands for it, and "\\" for a backslash.
std::string escaped(const std::string& word) {
  std::string out;
  for (const char c : word) out += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
  return out;
}

std::string unescaped(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    out += !escape ? line[i] : line[i + 1] == 'n' ? '\n' : line[i + 1];
    if (escape) ++i;
  }
  return out;
}

// The lines of a file that write_options() wrote.
std::vector<std::string> read_options(const std::string& path) {
  std::vector<std::string> options;
  if (!is_there(path)) return options;
  std::istringstream in(read_text(path, 1 << 20));
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') options.push_back(unescaped(line));
  return options;
}
}  // namespace

std::string runs_near(const std::string& name) {
  fs::path path = fs::path(name).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // of "runs/my/"
  const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
  std::vector<std::string> beside;
  for (const char* file : {kBest, kLatest})
    if (!is_folder(path) && is_there(parent / file))
      beside.push_back((parent / file).lexically_normal().string());
  if (!beside.empty()) return hint(beside);
  for (const fs::path& folder : {path, parent, fs::path(kRuns)})
    if (const auto runs = runs_in(folder); !runs.empty()) return hint(runs);
  return "";
}

ChosenCheckpoint choose_checkpoint(const std::string& name) {
  if (is_missing(name)) {
    const std::string absent = absent_part_text(fs::path(name).extension().string());
    if (!absent.empty()) fail(name, ": ", absent);
    fail(name.empty() ? "an empty name" : name,
         " does not exist, expected a run folder or a checkpoint", runs_near(name));
  }
  if (!is_folder(name)) return {name, ""};
  for (const char* file : {kBest, kLatest}) {
    const std::string path = (fs::path(name) / file).string();
    const char* const why = file == kBest ? ", the best of the run" : ", as there is no best.h5";
    if (is_there(path)) return {path, "checkpoint " + path + why};
  }
  fail(name, " is no run folder: it holds neither ", kBest, " nor ", kLatest, runs_near(name));
}

ResumedRun find_run(const std::string& config, const std::string& out,
                    const std::vector<std::string>& overrides, const std::string& resume) {
  ResumedRun run{.checkpoint = resume, .config = config, .out = out};
  fs::path folder = resume;
  if (resume.empty()) {
    const fs::path beside = fs::path(config).parent_path();
    if (!out.empty())
      folder = out;
    else if (config.empty())
      folder = newest_run(), run.text = folder.string() + ", the run in runs/ that saved last";
    else if (is_same_file(config, beside / kConfig) && is_there(beside / kLatest))
      folder = beside.empty() ? "." : beside;
    else
      folder = fs::path(kRuns) / load_config(config, overrides).name;
  } else if (!is_folder(resume)) {
    folder = folder.parent_path();
  }
  if (resume.empty() || is_folder(resume)) run.checkpoint = (folder / kLatest).string();
  if (!is_there(run.checkpoint))
    fail("nothing to resume: ", run.checkpoint, " does not exist",
         runs_near(resume.empty() ? folder.string() : resume));
  const std::string own = (folder / kConfig).string();
  const bool whole_folder = resume.empty() || is_folder(resume);
  if (config.empty() && whole_folder && is_there(own)) run.config = own;
  run.is_own = config.empty() || is_same_file(config, own);
  if (out.empty() && (whole_folder || config.empty())) run.out = folder.empty() ? "." : folder;
  run.kept_in = (folder / kOptions).string();
  run.options = read_options(run.kept_in);
  return run;
}

Config config_of(const ResumedRun& run, const std::vector<std::string>& overrides) {
  return run.config.empty()
             ? parse_config(checkpoint_config(run.checkpoint), run.checkpoint, overrides)
             : load_config(run.config, overrides);
}

void write_options(const std::string& path, const std::vector<std::string>& words) {
  write_whole_file(path, [&](std::ostream& out) {
    out << "# Options of this run, which train --resume takes again unless it is given others.\n";
    for (const std::string& word : words) out << escaped(word) << '\n';
  });
}

std::vector<std::string> given_options(const CLI::App& app,
                                       const std::vector<std::string>& left_out) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options([](const auto* o) { return o->count() > 0; })) {
    const std::string name = option->get_name();
    if (std::ranges::count(left_out, name) > 0) continue;
    const bool is_flag = option->get_items_expected_max() == 0;
    for (const std::string& value : option->results())
      words.push_back(is_flag ? name : name + "=" + value);
  }
  return words;
}

std::vector<std::string> merged_options(const std::vector<std::string>& before,
                                        const std::vector<std::string>& now) {
  std::vector<std::string> words = before;
  for (const std::string& word : now) {
    std::erase_if(words, [&](const std::string& w) { return slot_of(w) == slot_of(word); });
    words.push_back(word);
  }
  return words;
}

std::vector<std::string> option_changes(const std::vector<std::string>& before,
                                        const std::vector<std::string>& now) {
  std::map<std::string, std::string> was;
  for (const std::string& word : before) was[option_of(word)] = word;
  std::vector<std::string> changes;
  for (const std::string& word : now) {
    const std::string option = option_of(word);
    if (option == "--set" || was[option] == word) continue;
    const auto value = [&](const std::string& w) {
      return w.empty() ? "not given" : w == option ? "given" : w.substr(option.size() + 1);
    };
    changes.push_back(str(option, " from ", value(was[option]), " to ", value(word)));
  }
  return changes;
}
}  // namespace weft
