// SPDX-License-Identifier: MIT
#include "src/config/read_config.h"

#include "src/config/fields.h"
#include "src/config/names.h"
#include "src/config/write_config.h"
#include "src/parts/parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

namespace weft {
std::string placed(const std::string& place, const std::string& text) {
  constexpr std::string_view kSet = "--set ";
  const bool repeats = place.starts_with(kSet) && text.starts_with(place.substr(kSet.size()) + ":");
  return repeats ? str(kSet, text) : str(place, ": ", text);
}

namespace {
constexpr int kMaxPatterns = 65536;  // aliases make long lists of short texts

std::string found_text(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar: {
      const std::string text =
          node.Scalar().size() > 60 ? node.Scalar().substr(0, 60) + "..." : node.Scalar();
      return node.Tag() == "!" || text.empty() ? str("the text \"", text, "\"") : text;
    }
    case YAML::NodeType::Sequence: return str("a list of ", node.size());
    case YAML::NodeType::Map: return "a map";
    case YAML::NodeType::Null:
    case YAML::NodeType::Undefined: break;
  }
  return "nothing";
}

bool is_plain(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

// Counts documents: YAML::LoadAll never ends where something follows a flow collection ("{a: b},
// c").
class DocumentCount : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override { ++count; }

  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}

  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}

  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}

  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}

  void OnSequenceEnd() override {}

  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}

  void OnMapEnd() override {}

  int count = 0;
};

// The text as one YAML document; null where there is none.
YAML::Node one_document(const std::string& yaml, const std::string& where) {
  std::istringstream in(yaml);
  YAML::Parser parser(in);
  DocumentCount documents;
  while (documents.count < 2 && parser.HandleNextDocument(documents)) {}
  if (documents.count > 1) fail(where, ": expected one YAML document, but something follows it");
  return YAML::Load(yaml);
}

// Fills a Config from YAML of one file or of one override.
class Reader {
 public:
  Reader(Config& config, Places& places, std::string file)
      : places_(places),
        file_(std::move(file)) {
    for_each_field(config, [&](const Field& f) { fields_.push_back(f); });
  }

  void read_pattern(const YAML::Node& map, const std::string& key, PatternSpec& pattern) {
    if (++nesting_ > kMaxPatternNesting)
      fail_at(place(map), key, ": patterns nest at most ", kMaxPatternNesting, " deep");
    if (++patterns_ > kMaxPatterns)
      fail_at(place(map), key, ": more than ", kMaxPatterns, " patterns");
    std::vector<Field> fields;
    std::vector<std::string> known;
    for_each_pattern_field(pattern, [&](const Field& f) {
      fields.push_back(f);
      known.push_back(f.key);
    });
    std::map<std::string, std::string> seen;  // key -> place
    for (const auto& entry : map) {
      const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "",
                        at = place(entry.first);
      const auto found = std::ranges::find(known, name);
      if (found == known.end())
        fail_at(at, key, ": unknown key ", name, " of a pattern", did_you_mean(name, known),
                " (known: ", joined(known), ")");
      if (!seen.emplace(name, at).second) fail_at(at, key, ": ", name, " is given twice");
      Field field = fields[found - known.begin()];
      field.key = key + "." + name;
      read_field(field, entry.second);
    }
    if (!seen.contains("kind")) fail_at(place(map), key, ": a pattern needs a kind");
    const std::vector<std::string> read = fields_read(pattern);
    for (const auto& [name, at] : seen)
      if (std::ranges::count(read, name) == 0)
        fail_at(at, key, ": a pattern ", to_yaml(pattern), " does not read ", name, "; it reads ",
                joined(read));
    const std::vector<std::string>& required = required_fields(pattern);
    for_each_pattern_field(pattern, [&](const Field& f) {
      if (!seen.contains(f.key) && std::ranges::count(required, f.key) > 0)
        fail_at(place(map), key, ": ", f.key, " is required in a pattern of kind ", pattern.kind,
                " (", f.comment, ")");
    });
    --nesting_;
  }

  void read_section(const YAML::Node& map, const std::string& prefix) {
    const std::string section = prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1);
    if (map.IsNull()) return;
    if (!map.IsMap())
      fail(place(map), ": ", section.empty() ? "the config" : section,
           ": expected keys with values (", joined(keys_below(prefix, false)), "), found ",
           found_text(map));
    std::set<std::string> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar())
        fail(place(entry.first), ": expected the name of a key, found ", found_text(entry.first));
      const std::string key = prefix + entry.first.Scalar(), where = place(entry.first);
      if (!seen.insert(key).second) fail(where, ": ", key, " is given twice");
      places_[key] = where;
      if (const Field* field = find(key)) {
        read_field(*field, entry.second);
      } else if (is_section(key + ".")) {
        read_section(entry.second, key + ".");
      } else {
        unknown_key(where, key);
      }
    }
  }

  // "--set key=value": one key, with the override itself as the place.
  void read_override(const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    file_ = "--set " + key;
    if (equals == std::string::npos)
      fail("--set ", text, ": expected KEY=VALUE, for example train.steps=100");
    const Field* field = find(key);
    if (!field && is_section(key + "."))
      fail(file_, ": is a section; set one of its keys: ", joined(keys_below(key + ".", true)));
    if (!field) unknown_key(file_, key);
    try {
      places_[key] = file_;
      read_field(*field, one_document(text.substr(equals + 1), file_));
      // Two ways to say one thing: what is set here takes the place of what stood in the file.
      if (key == "train.batch") *std::get<int64_t*>(find("train.batch_tokens")->value) = 0;
      if (key == "train.batch_tokens") places_.erase("train.batch");
    } catch (const YAML::Exception& e) {
      fail(file_, ": the value is not valid YAML: ", e.msg);
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] static void fail_at(const std::string& place, const Parts&... text) {
    fail(placed(place, str(text...)));
  }

  std::string place(const YAML::Node& node) const {
    return file_.starts_with("--set ") || node.Mark().line < 0
               ? file_
               : str(file_, ":", node.Mark().line + 1);
  }

  const Field* find(const std::string& key) const {
    const auto it = std::ranges::find(fields_, key, &Field::key);
    return it == fields_.end() ? nullptr : &*it;
  }

  bool is_section(const std::string& prefix) const {
    return std::ranges::any_of(fields_, [&](const Field& f) { return f.key.starts_with(prefix); });
  }

  // Names that may stand in a section ("" or "model."): its keys and sub-sections, or all full keys
  // below it.
  std::vector<std::string> keys_below(const std::string& prefix, bool full) const {
    std::vector<std::string> names;
    for (const Field& f : fields_) {
      if (!f.key.starts_with(prefix)) continue;
      const std::string rest = f.key.substr(prefix.size()),
                        name = full ? f.key : rest.substr(0, rest.find('.'));
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    return names;
  }

  // Suggests the nearest name in the section of `key`, or the same or a near name in another one.
  [[noreturn]] void unknown_key(const std::string& where, const std::string& key) const {
    const std::size_t dot = key.rfind('.');
    const std::string section = dot == std::string::npos ? "" : key.substr(0, dot + 1),
                      name = key.substr(section.size());
    std::string nearest = nearest_name(name, keys_below(section, false));
    if (!nearest.empty()) nearest = section + nearest;
    for (const Field& f : fields_)
      if (f.key == name || f.key.ends_with("." + name)) nearest = f.key;
    if (nearest.empty()) nearest = nearest_name(key, keys_below("", true));
    const bool at_top = !section.empty() && nearest.find('.') == std::string::npos;
    const auto known = keys_below(section, false);
    fail(where, ": unknown key ", key,
         !nearest.empty()
             ? str("; did you mean ", nearest, at_top ? ", which stands at the top?" : "?")
         : known.empty() ? ""
                         : "; known here: " + joined(known));
  }

  void read_field(const Field& field, const YAML::Node& node) {
    std::visit([&](const auto& value) { read_value(field, node, *value); }, field.value);
  }

  [[noreturn]] void expected(const Field& field, const YAML::Node& node, const std::string& what,
                             const std::string& hint = "") const {
    // A missing value has the place of whatever comes next.
    const auto key = places_.find(field.key);
    const std::string where = node.IsNull() && key != places_.end() ? key->second : place(node);
    fail_at(where, field.key, ": expected ", what, ", found ", found_text(node), hint);
  }

  void read_value(const Field& field, const YAML::Node& node, const Enumerated& value) {
    std::string name;
    read_value(field, node, name);
    value.set_name(name);
  }

  void read_value(const Field& field, const YAML::Node& node, std::string& value) {
    const bool known = node.IsScalar() && std::ranges::count(field.choices, node.Scalar()) > 0;
    if (!field.choices.empty() && !known) {
      const std::string absent = node.IsScalar() ? absent_part_text(node.Scalar()) : "";
      if (!absent.empty()) fail_at(place(node), field.key, ": ", absent);
      expected(field, node, listed(field.choices, " or "),
               node.IsScalar() ? did_you_mean(node.Scalar(), field.choices) : "");
    }
    if (!node.IsScalar()) expected(field, node, "a text");
    value = node.Scalar();
  }

  void read_value(const Field& field, const YAML::Node& node, bool& value) {
    if (!is_plain(node) || (node.Scalar() != "true" && node.Scalar() != "false"))
      expected(field, node, "true or false");
    value = node.Scalar() == "true";
  }

  template <class T>
    requires std::is_arithmetic_v<T>
  void read_value(const Field& field, const YAML::Node& node, T& value) {
    constexpr bool kReal = std::is_floating_point_v<T>;
    const std::string what = (kReal ? "a number" : "an integer") + field.range.text();
    const auto parsed = is_plain(node) ? number_in<T>(node.Scalar()) : std::nullopt;
    if (!parsed) {
      const auto real = !kReal && is_plain(node) ? number_in<double>(node.Scalar()) : std::nullopt;
      std::string whole;  // the same number as an integer, when it is one
      if (real && std::abs(*real) < 1e15 && *real == std::trunc(*real))
        whole = str(static_cast<int64_t>(*real));
      expected(field, node, what,
               whole.empty() || whole == node.Scalar() ? "" : "; write " + whole);
    }
    if (!(std::abs(static_cast<double>(*parsed)) <= std::numeric_limits<double>::max()) ||
        !field.range.contains(static_cast<double>(*parsed)))
      expected(field, node, what);
    value = *parsed;
  }

  void read_value(const Field& field, const YAML::Node& node, std::vector<int64_t>& value) {
    if (!node.IsSequence()) expected(field, node, "a list of integers such as [96, 128]");
    value.clear();
    for (const auto& item : node) read_value(field, item, value.emplace_back());
  }

  void read_value(const Field& field, const YAML::Node& node,
                  std::vector<std::pair<int64_t, int64_t>>& value) {
    const std::string what = "a list of [step, context] pairs such as [[0, 1536], [1500, 12288]]";
    if (!node.IsSequence()) expected(field, node, what);
    value.clear();
    for (const auto& item : node) {
      if (!item.IsSequence() || item.size() != 2) expected(field, item, what);
      auto& [step, context] = value.emplace_back();
      read_value(field, item[0], step);
      read_value(field, item[1], context);
    }
  }

  void read_value(const Field& field, const YAML::Node& node, std::vector<PatternSpec>& value) {
    const std::string what =
        "a pattern such as {kind: fixed, stride: 128, c: 32}, or a list of them";
    if (!node.IsMap() && !(node.IsSequence() && node.size() > 0)) expected(field, node, what);
    value.clear();
    const std::size_t count = node.IsMap() ? 1 : node.size();
    for (std::size_t i = 0; i < count; ++i) {
      const YAML::Node item = node.IsMap() ? node : node[i];
      if (!item.IsMap()) expected(field, item, what);
      places_[str(field.key, "[", i, "]")] = place(item);
      read_pattern(item, field.key, value.emplace_back());
    }
  }

  Places& places_;
  std::string file_;
  std::vector<Field> fields_;
  int nesting_ = 0, patterns_ = 0;  // of the pattern at hand; read so far
};

// Turns train.batch_tokens into train.batch.
void resolve_batch(Config& config, Places& places) {
  const int64_t context = config.model.context, tokens = config.train.batch_tokens;
  if (tokens == 0) return;
  const std::string place = places.at("train.batch_tokens");
  if (places.contains("train.batch"))
    fail(place, ": train.batch_tokens and train.batch (", places.at("train.batch"),
         ") say the same thing; keep one of them");
  const int64_t below = tokens / context * context;
  if (below != tokens)
    fail(place, ": train.batch_tokens ", tokens, " is not a multiple of model.context ", context,
         "; ", below > 0 ? str(below, " or ") : "", below + context, " works");
  config.train.batch = tokens / context;
  config.train.batch_tokens = 0;
  places["train.batch"] = place;
}

[[noreturn]] void not_yaml(const std::string& where, const YAML::Exception& e) {
  fail(where, e.mark.is_null() ? "" : str(":", e.mark.line + 1), ": not valid YAML: ", e.msg);
}
}  // namespace

Config parse_config(const std::string& yaml, const std::string& where,
                    const std::vector<std::string>& overrides, ConfigUse use) {
  Config config;
  config.source = where;
  Places places = {{"", where}};
  Reader reader(config, places, where);
  try {
    reader.read_section(one_document(yaml, where), "");  // an empty file: all defaults
  } catch (const YAML::Exception& e) {
    not_yaml(where, e);
  }
  for (const std::string& text : overrides) reader.read_override(text);
  resolve_batch(config, places);
  check_config(config, places, use);
  return config;
}

PatternSpec parse_pattern(const std::string& yaml, const std::string& where) {
  Config unused;
  Places places = {{"", where}};
  PatternSpec pattern;
  try {
    const YAML::Node node = one_document(yaml, where);
    if (!node.IsMap()) fail(where, ": expected a pattern such as {kind: local, stride: 128}");
    Reader(unused, places, where).read_pattern(node, "pattern", pattern);
  } catch (const YAML::Exception& e) {
    not_yaml(where, e);
  }
  return pattern;
}
}  // namespace weft
