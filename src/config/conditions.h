// SPDX-License-Identifier: MIT
// What a sequence is told before its first token, and what parts make of their keys.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft {
struct Config;

enum class Augment : uint8_t;  // which of the kinds of the part that adds it

// One thing that the model is told of a sequence, as a row of its start table. The sum of the rows
// of all things replaces the plain start vector.
struct Condition {
  Augment kind;
  const char* name = "";
  int64_t values = 0;     // 0 .. values - 1; 0: not augmented
  int64_t first_row = 0;  // row of the start table that value 0 has
};

// What the model is told (ConfigExtension); empty: it has a plain start vector.
std::vector<Condition> conditions(const Config&);
// Rows of the start table; 0 without conditions.
int64_t condition_rows(const std::vector<Condition>&);

// Throws Error with these words, and where the first of `keys` that was set stands.
using RefuseConfig =
    std::function<void(const std::vector<std::string>& keys, const std::string& text)>;

struct ConfigExtension {
  std::vector<Condition> (*conditions)(const Config&);  // rows counted from 0
  void (*check)(const Config&, const RefuseConfig&);    // called by check_config
  // A sentence for people where sequences are changed and the model is told nothing; "": they
  // aren't.
  std::string (*untold)(const Config&);
};

// The table: a part adds a row (src/parts/parts.h).
void add_config_extension(const ConfigExtension&);
const std::vector<ConfigExtension>& config_extensions();
}  // namespace weft
