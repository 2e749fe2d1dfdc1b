// SPDX-License-Identifier: MIT
// Wrong: it tries one other token at each place. A leak may need a certain one.
// Rejected with: position 10 asks whether token 12 is a 15: the leak of position 10 is not found
#include "tests/exercises/02_future_leak/exercise.h"

#include <cmath>
#include <cstddef>

bool leaky_attends(int64_t i, int64_t j) { return j <= i || (i == 7 && j == 8); }

std::vector<int64_t> leaking_positions(const Model& model, const Tokens& tokens) {
  const Logits before = model(tokens);
  std::vector<int64_t> positions;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    bool leaks = false;
    for (std::size_t j = i + 1; j < tokens.size(); ++j) {
      Tokens changed = tokens;
      changed[j] = (changed[j] + 1) % kVocabulary;
      leaks = leaks || model(changed)[i] != before[i];
    }
    if (leaks) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}
