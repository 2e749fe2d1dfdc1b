// SPDX-License-Identifier: MIT
// Wrong: it allows for a tolerance, below which a leak stays unseen. Equal inputs give equal bits.
// Rejected with: a factor that is the same for all positions and depends on all tokens: the leak of
// position 0 is not found
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
      for (int token = 0; token < kVocabulary; ++token) {
        Tokens changed = tokens;
        changed[j] = token;
        const std::vector<double> row = model(changed)[i];
        for (std::size_t c = 0; c < row.size(); ++c)
          leaks = leaks || std::abs(row[c] - before[i][c]) > 1e-5;
      }
    }
    if (leaks) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}
