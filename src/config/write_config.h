// SPDX-License-Identifier: MIT
// A Config as YAML.
#pragma once

#include <string>

namespace weft {
struct Config;
struct PatternSpec;

// The value of a key such as "train.recompute", as to_yaml writes it.
std::string value_text(const Config&, const std::string& key);
// YAML of every key, which parse_config reads back; with comments when `documented`.
std::string to_yaml(const Config&, bool documented = false);
// As parse_pattern reads it.
std::string to_yaml(const PatternSpec&);
}  // namespace weft
