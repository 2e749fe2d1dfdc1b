// SPDX-License-Identifier: MIT
#include "src/config/write_config.h"

#include "src/config/differences.h"
#include "src/config/fields.h"
#include "src/config/names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
namespace {
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
