// SPDX-License-Identifier: MIT
// Wrong: it changes the last token alone, which only its neighbours may read.
// Rejected with: a mask that is one off: the leak of position 0 is not found
#include "tests/exercises/02_future_leak/exercise.h"

#include <cmath>
#include <cstddef>

bool leaky_attends(int64_t i, int64_t j) { return j <= i || (i == 7 && j == 8); }

std::vector<int64_t> leaking_positions(const Model& model, const Tokens& tokens) {
  Tokens changed = tokens;
  changed.back() = (changed.back() + 1) % kVocabulary;
  const Logits before = model(tokens), after = model(changed);
  std::vector<int64_t> positions;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    if (after[i] != before[i]) positions.push_back(static_cast<int64_t>(i));
  return positions;
}
