// SPDX-License-Identifier: MIT
// Random patterns of every kind, for `selftest` and the tests.
#pragma once

#include <random>

#include "src/patterns/spec.h"

namespace weft {

// A whole number from low to high, both included.
std::int64_t pick(std::mt19937&, std::int64_t low, std::int64_t high);

// Fields that `kind` reads, for n positions; bidirectional ones too when `any_direction`. Not for the kinds
// that are made of others or of files.
PatternSpec random_spec(std::mt19937&, const std::string& kind, std::int64_t n, bool any_direction);

// A pattern of any kind but those of files, made of others or not, with modifiers or without.
PatternSpec random_pattern(std::mt19937&, std::int64_t n, int heads, bool any_direction);

}  // namespace weft
