// SPDX-License-Identifier: MIT
#include "src/config/config.h"

#include "src/config/fields.h"
#include "src/config/names.h"
#include "src/files/files.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <variant>
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

// ---- the config as YAML ----

constexpr std::size_t kCommentColumn = 36, kLineWidth = 118;

// As YAML reads it back: plain when it is made of harmless letters, else in double quotes.
std::string value_text(const std::string& s) {
  const auto harmless = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' ||
           c == '-';
  };
  const bool null_like = s == "null" || s == "Null" || s == "NULL";
  if (!s.empty() && s[0] != '-' && !null_like && std::ranges::all_of(s, harmless)) return s;
  std::string quoted = "\"";
  for (const char c : s) {
    const auto code = static_cast<unsigned char>(c);
    static const char* hex = "0123456789abcdef";
    if (c == '"' || c == '\\')
      quoted += std::string("\\") + c;
    else if (code < 32 || code == 127)
      quoted += std::string("\\x") + hex[code / 16] + hex[code % 16];
    else
      quoted += c;
  }
  return quoted + "\"";
}

std::string value_text(const Enumerated& v) { return v.name(); }

std::string value_text(bool v) { return v ? "true" : "false"; }

std::string value_text(int64_t v) { return std::to_string(v); }

std::string value_text(uint64_t v) { return std::to_string(v); }

std::string value_text(double v) {  // the shortest that reads back to the same bits
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), v).ptr};
}

std::string value_text(const std::pair<int64_t, int64_t>& v) {
  return str("[", v.first, ", ", v.second, "]");
}

std::string value_text(const PatternSpec&);

template <class T>
std::string value_text(const std::vector<T>& list) {
  return "[" + joined(list, ", ", [](const T& v) { return value_text(v); }) + "]";
}

// What the kind reads: the first four fields always, the others where they differ from the default.
std::string value_text(const PatternSpec& v) {
  PatternSpec copy = v, defaults;
  const std::vector<std::string> read = fields_read(v),
                                 always = {"kind", "stride", "c", "num_verts"};
  std::vector<std::string> unset;
  for_each_pattern_field(defaults, [&](const Field& f) { unset.push_back(value_text(f)); });
  std::size_t at = 0;
  std::string s;
  for_each_pattern_field(copy, [&](const Field& f) {
    const std::string text = value_text(f), &usual = unset[at++];
    if (std::ranges::count(read, f.key) == 0) return;
    if (text != usual || std::ranges::count(always, f.key) > 0)
      s += (s.empty() ? "" : ", ") + f.key + ": " + text;
  });
  return "{" + s + "}";
}

// "model.init.std" after "model.vocab" opens the section "init:" two columns in.
void open_sections(std::string& out, const std::string& key, std::string& section) {
  const std::size_t dot = key.rfind('.');
  const std::string mine = dot == std::string::npos ? "" : key.substr(0, dot);
  if (mine == section) return;
  const std::string name =
      mine.substr(mine.rfind('.') == std::string::npos ? 0 : mine.rfind('.') + 1);
  if (!mine.empty()) out += std::string(2 * std::ranges::count(mine, '.'), ' ') + name + ":\n";
  section = mine;
}
}  // namespace

Config load_config(const std::string& name, const std::vector<std::string>& overrides,
                   ConfigUse use) {
  const std::string path = find_config(name);
  return parse_config(read_text(path, kLargestConfig), path, overrides, use);
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
  int64_t rows = 0;
  const auto add = [&](bool used, Augment kind, int64_t values) {
    if (!used) return;
    kinds.push_back({kind, values, rows});
    rows += values;
  };
  add(a.rotation, Augment::rotation, 4);
  add(a.color, Augment::color, 6);
  add(a.transposition, Augment::transposition, 2);
  add(a.reversal, Augment::reversal, 2);
  int64_t orders = 1;  // of the tiles
  for (int64_t tile = 2; tile <= a.jigsaw * a.jigsaw; ++tile) orders *= tile;
  add(a.jigsaw > 1, Augment::jigsaw, orders);
  add(a.randaugment > 0, Augment::randaugment, 2);
  add(a.random_order > 0, Augment::random_order, a.random_order + 1);
  add(!config.data.mix.empty(), Augment::dataset, 2);
  return kinds;
}

std::vector<Condition> conditions(const Config& config) {
  std::vector<Condition> told;
  if (config.augment.conditional) told = augmentations(config);
  if (config.data.labels)
    told.push_back({Augment::label, config.data.classes, condition_rows(told)});
  return told;
}

int64_t condition_rows(const std::vector<Condition>& kinds) {
  return kinds.empty() ? 0 : kinds.back().first_row + kinds.back().values;
}

std::string full_comment(const Field& f) {
  const std::string range = f.range.text(), of = " of ";
  std::string allowed = joined(f.choices, " | ");
  if (!range.empty()) allowed = range.starts_with(of) ? range.substr(of.size()) : range.substr(1);
  return f.comment + (allowed.empty() ? "" : " (" + allowed + ")");
}

std::string value_text(const Field& f) {
  return std::visit([](const auto& v) { return value_text(*v); }, f.value);
}

std::string value_text(const Config& config, const std::string& key) {
  Config copy = config;
  std::string text;
  for_each_field(copy, [&](const Field& f) {
    if (f.key == key) text = value_text(f);
  });
  WEFT_CHECK(!text.empty(), "a config has no key ", key);
  return text;
}

std::string to_yaml(const Config& config, bool documented) {
  Config copy = config;
  std::string out, section;
  if (documented)
    out = str("# Every key with its default. A config needs only the keys that differ.\n",
              "# train --resume lets these differ: ", keys_on_resume(OnResume::free),
              ";\n# it says what ", keys_on_resume(OnResume::told),
              " changes; with --allow-changes also ", keys_on_resume(OnResume::asked), ".\n");
  for_each_field(copy, [&](const Field& f) {
    open_sections(out, f.key, section);
    const auto depth = static_cast<std::size_t>(std::ranges::count(f.key, '.'));
    // npos + 1 is 0
    const std::string indent(2 * depth, ' '), name = f.key.substr(f.key.rfind('.') + 1);
    std::string line = indent + name + ": " + value_text(f);
    if (documented) {
      if (line.size() < kCommentColumn && kCommentColumn + full_comment(f).size() + 2 <= kLineWidth)
        line.resize(kCommentColumn, ' ');
      else
        line = indent + "# " + full_comment(f) + "\n" + line;
      if (line.find('#') == std::string::npos) line += "# " + full_comment(f);
    }
    out += line + "\n";
  });
  return out;
}

std::string to_yaml(const PatternSpec& spec) { return value_text(spec); }
}  // namespace weft
