// SPDX-License-Identifier: MIT
// YAML read strictly into a Config. An unknown key, a wrong type or an impossible value is an Error
// with file:line, what was expected, and the nearest known name.
#pragma once

#include <string>
#include <vector>

namespace weft {
struct Config;
struct PatternSpec;

// What a config is read for: the patterns of a model have to be causal, a picture shows any.
enum class ConfigUse { model, picture };

// Reads a config file. A name that is not a path is looked for in configs/. `overrides` are
// "a.b=c", as for --set.
Config load_config(const std::string& name, const std::vector<std::string>& overrides = {},
                   ConfigUse = ConfigUse::model);
// The same from text; `where` is what errors name as the file.
Config parse_config(const std::string& yaml, const std::string& where,
                    const std::vector<std::string>& overrides = {}, ConfigUse = ConfigUse::model);
// One pattern as it stands in model.attention, "{kind: local, stride: 64}".
PatternSpec parse_pattern(const std::string& yaml, const std::string& where);

// Throws Error when values do not fit together, with file, keys and the nearest values that work.
// parse_config calls it.
void check_config(const Config&, ConfigUse = ConfigUse::model);
}  // namespace weft
