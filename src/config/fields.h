// SPDX-License-Identifier: MIT
// The table of config keys that reading, writing, documentation and checks share. Internal to
// src/config.
#pragma once

#include "src/config/config.h"
#include "src/config/differences.h"
#include "src/config/read_config.h"

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
// What a number may be. open_*: the bound itself is not allowed.
struct Range {
  double low = -std::numeric_limits<double>::infinity(),
         high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;

  bool contains(double x) const {
    return (open_low ? x > low : x >= low) && (open_high ? x < high : x <= high);
  }

  std::string text() const;  // " of at least 1 and less than 2"; "" for all numbers
};

// The value of an enumeration, by its name in a file.
struct Enumerated {
  std::function<std::string()> name;                 // "": the table lacks the value
  std::function<void(const std::string&)> set_name;  // to one of Field::choices
};

struct Field {
  using Value =
      std::variant<std::string*, bool*, int64_t*, uint64_t*, double*, std::vector<int64_t>*,
                   std::vector<PatternSpec>*, std::vector<std::pair<int64_t, int64_t>>*,
                   std::shared_ptr<const Enumerated>>;
  std::string key;  // with its section: "model.width"
  Value value;      // where it is stored
  std::string comment;
  Range range = {};                       // of a number, or of each number of a list
  std::vector<std::string> choices = {};  // of a text or an enumeration; empty: any
  OnResume on_resume = OnResume::same;
  std::string effect = "";  // with OnResume::asked and told
};

using Visit = std::function<void(const Field&)>;

// All keys of a config, in the order of the file; sections come in one piece each.
void for_each_field(Config&, const Visit&);
// The keys of one entry of model.attention.
void for_each_pattern_field(PatternSpec&, const Visit&);

std::string value_text(const Field&);    // as to_yaml writes it
std::string full_comment(const Field&);  // the comment, with what the value may be

// Where keys were set, for errors: "configs/tiny.yaml:12" or "--set model.width". Defaults have no
// place.
using Places = std::map<std::string, std::string>;
// "<place>: <text>"; "--set KEY: <text>" where the text itself begins with "KEY:".
std::string placed(const std::string& place, const std::string& text);
// check_config with places: errors name that of the first of the concerned keys
// that --set set, or else the file.
void check_config(const Config&, const Places&, ConfigUse);
}  // namespace weft
