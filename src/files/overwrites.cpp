// SPDX-License-Identifier: MIT
#include "src/files/overwrites.h"

#include "kernels/view.h"
#include "src/files/checkpoint.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace weft {
namespace {
namespace fs = std::filesystem;

bool is_no_regular_file(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none) && !fs::is_regular_file(path, none);
}

// Of files that are not there yet, whether they would be the same one.
bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code none;
  if (fs::equivalent(a, b, none)) return true;
  const fs::path behind_links = fs::weakly_canonical(fs::absolute(a, none), none);
  return !behind_links.empty() && behind_links == fs::weakly_canonical(fs::absolute(b, none), none);
}

bool is_kept_by_train(const fs::path& file) {
  const std::string name = file.filename().string();
  for (const char* kept :
       {"config.yaml", "options.txt", "metrics.jsonl", "about.txt", "latest.h5", "best.h5"})
    if (name == kept) return true;
  return step_of_name(name) >= 0;
}
}  // namespace

void check_overwrites(const std::vector<OutputOption>& outputs,
                      const std::vector<std::string>& inputs) {
  std::vector<OutputOption> seen;
  for (const OutputOption& output : outputs) {
    if (output.path.empty() || is_no_regular_file(output.path)) continue;
    for (const std::string& input : inputs)
      if (!input.empty() && is_same_file(output.path, input))
        fail(output.path, ": is both read and written; choose another ", output.option);
    for (const OutputOption& other : seen)
      if (is_same_file(output.path, other.path))
        fail(other.option, " and ", output.option, " name one file, ", output.path,
             "; choose two names");
    seen.push_back(output);
  }
}

void check_run_is_kept(const std::vector<OutputOption>& outputs, const std::string& folder) {
  std::error_code ended;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, ended), end; !ended && at != end;
       at.increment(ended)) {
    if (!is_kept_by_train(at->path())) continue;
    for (const auto& [option, path] : outputs)
      if (!path.empty() && is_same_file(path, at->path().string()))
        fail(path, ": is a file of the run, which would be lost; choose another ", option);
  }
}
}  // namespace weft
