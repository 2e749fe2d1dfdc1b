// SPDX-License-Identifier: MIT
#include "src/config/config.h"

#include <algorithm>
#include <filesystem>

#include "src/files/files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestConfig = 1 << 20;  // bytes

// configs/ in the working directory, then those above the executable (of its source tree, or installed). The
// folders inside come after each.
std::vector<fs::path> config_folders() {
  std::vector<fs::path> roots = {"configs"}, folders;
  std::error_code error;
  fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; !error && level < 4 && above.has_relative_path(); ++level, above = above.parent_path())
    for (const char* place : {"configs", "share/weft/configs"}) {
      std::error_code none;
      if (fs::is_directory(above / place, none)) roots.push_back(above / place);
    }
  for (const fs::path& root : roots) {
    std::vector<fs::path> inside;
    for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error))
      if (entry->is_directory(error)) inside.push_back(entry->path());
    std::sort(inside.begin(), inside.end());
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
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const std::string hint = did_you_mean(name.ends_with(".yaml") ? name : name + ".yaml", known);
  fail(str("no config ", name, hint.empty() ? "." : hint, " Looked for ", joined(looked),
           known.empty() ? "" : "; there are " + joined(known)));
}

}  // namespace

Config load_config(const std::string& name, const std::vector<std::string>& overrides, ConfigUse use) {
  const std::string path = find_config(name);
  return parse_config(read_text(path, kLargestConfig), path, overrides, use);
}

DType compute_dtype(const Config& config) {
  return config.precision == "bf16" ? DType::bf16 : config.precision == "f16" ? DType::f16 : DType::f32;
}

const char* name_of(Augment kind) {
  static constexpr const char* kNames[kAugments + 1] = {"rotation",     "color",   "transposition",
                                                        "reversal",     "jigsaw",  "randaugment",
                                                        "random_order", "dataset", "label"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Condition> augmentations(const Config& config) {
  const AugmentConfig& a = config.augment;
  std::vector<Condition> kinds;
  std::int64_t rows = 0;
  const auto add = [&](bool used, Augment kind, std::int64_t values) {
    if (!used) return;
    kinds.push_back({kind, values, rows});
    rows += values;
  };
  add(a.rotation, Augment::rotation, 4);
  add(a.color, Augment::color, 6);
  add(a.transposition, Augment::transposition, 2);
  add(a.reversal, Augment::reversal, 2);
  std::int64_t orders = 1;  // of the tiles
  for (std::int64_t tile = 2; tile <= a.jigsaw * a.jigsaw; ++tile) orders *= tile;
  add(a.jigsaw > 1, Augment::jigsaw, orders);
  add(a.randaugment > 0, Augment::randaugment, 2);
  add(a.random_order > 0, Augment::random_order, a.random_order + 1);
  add(!config.data.mix.empty(), Augment::dataset, 2);
  return kinds;
}

std::vector<Condition> conditions(const Config& config) {
  std::vector<Condition> told;
  if (config.augment.conditional) told = augmentations(config);
  if (config.data.labels) told.push_back({Augment::label, config.data.classes, condition_rows(told)});
  return told;
}

std::int64_t condition_rows(const std::vector<Condition>& kinds) {
  return kinds.empty() ? 0 : kinds.back().first_row + kinds.back().values;
}

}  // namespace weft
