// SPDX-License-Identifier: MIT
// Every token is replaced by every other one, and all rows before it must keep their bits.
#include "tests/exercises/02_future_leak/exercise.h"

#include <cstddef>

bool leaky_attends(int64_t i, int64_t j) { return j <= i || (i == 7 && j == 8); }

std::vector<int64_t> leaking_positions(const Model& model, const Tokens& tokens) {
  const Logits before = model(tokens);
  std::vector<bool> leaks(tokens.size());
  for (std::size_t j = 1; j < tokens.size(); ++j) {
    for (int token = 0; token < kVocabulary; ++token) {
      Tokens changed = tokens;
      changed[j] = token;
      const Logits after = model(changed);
      for (std::size_t i = 0; i < j; ++i)
        if (after[i] != before[i]) leaks[i] = true;
    }
  }
  std::vector<int64_t> positions;
  for (std::size_t i = 0; i < leaks.size(); ++i)
    if (leaks[i]) positions.push_back(static_cast<int64_t>(i));
  return positions;
}
