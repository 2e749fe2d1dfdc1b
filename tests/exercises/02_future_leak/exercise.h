// SPDX-License-Identifier: MIT
// A set of pairs that leaks the future once, and a test that finds where a model reads it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

using Tokens = std::vector<int>;  // each 0 .. kVocabulary - 1
inline constexpr int kVocabulary = 16;

// Logits of each position: row i may depend on tokens 0 .. i.
using Logits = std::vector<std::vector<double>>;
using Model = std::function<Logits(const Tokens&)>;

// Whether query i sees key j: all j <= i, and one pair more, among 32 positions.
bool leaky_attends(int64_t i, int64_t j);

// The positions i, ascending, whose logits change when some token after i does. `tokens` is a
// sequence to begin with.
std::vector<int64_t> leaking_positions(const Model&, const Tokens& tokens);
