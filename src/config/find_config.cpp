// SPDX-License-Identifier: MIT
// Where configs are looked for.
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/files/files.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace weft {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kLargestConfig = 1 << 20;  // bytes

// configs/ of the working directory, then those above the executable; after each the folders
// inside.
std::vector<fs::path> config_folders() {
  std::vector<fs::path> roots = {"configs"}, folders;
  std::error_code error;
  fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; !error && level < 4 && above.has_relative_path();
       ++level, above = above.parent_path())
    for (const char* place : {"configs", "share/weft/configs"}) {
      std::error_code none;
      if (fs::is_directory(above / place, none)) roots.push_back(above / place);
    }
  for (const fs::path& root : roots) {
    std::vector<fs::path> inside;
    for (fs::directory_iterator entry(root, error), end; !error && entry != end;
         entry.increment(error))
      if (entry->is_directory(error)) inside.push_back(entry->path());
    std::ranges::sort(inside);
    folders.push_back(root);
    folders.insert(folders.end(), inside.begin(), inside.end());
  }
  return folders;
}

std::string find_config(const std::string& name) {
  if (name.empty()) fail("the name of a config is empty");
  std::vector<std::string> looked, known;
  const auto folders = config_folders();
  const auto look = [&](const fs::path& path) {
    looked.push_back(path.string());
    std::error_code error;
    return fs::exists(path, error) && !fs::is_directory(path, error);
  };
  std::vector<fs::path> bases = {name};
  if (name.find('/') == std::string::npos)
    for (const fs::path& folder : folders) bases.push_back(folder / name);
  for (const fs::path& base : bases)
    for (const std::string& candidate : {base.string(), base.string() + ".yaml"})
      if ((candidate == base || !name.ends_with(".yaml")) && look(candidate)) return candidate;

  std::error_code error;
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".yaml") known.push_back(entry.path().filename().string());
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  const std::string hint = did_you_mean(name.ends_with(".yaml") ? name : name + ".yaml", known);
  fail("no config ", name, hint.empty() ? "." : hint, " Looked for ", joined(looked),
       known.empty() ? "" : "; there are " + joined(known));
}
}  // namespace

Config load_config(const std::string& name, const std::vector<std::string>& overrides,
                   ConfigUse use) {
  const std::string path = find_config(name);
  return parse_config(read_text(path, kLargestConfig), path, overrides, use);
}
}  // namespace weft
