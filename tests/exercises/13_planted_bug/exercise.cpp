// SPDX-License-Identifier: MIT
// Arithmetic on runs of keys, as in src/patterns/combine.cpp. One line is wrong.
#include "src/patterns/combine.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
void push(const KeyRun& run, std::vector<KeyRun>& out) {
  if (run.begin < run.end) out.push_back(run);
}

// The first key of the run that is not below `low`.
int64_t first_from(const KeyRun& run, int64_t low) {
  if (low <= run.begin) return run.begin;
  const int64_t steps = (low - run.begin + run.step - 1) / run.step;
  return run.begin + steps * run.step;
}

// What is left of `run` without the keys of `taken`.
void cut(const KeyRun& run, const KeyRun& taken, std::vector<KeyRun>& out) {
  int64_t begin = run.begin;
  const int64_t end = std::min(run.end, taken.end);
  for (int64_t j = first_from(taken, run.begin); j < end; j += taken.step) {
    if ((j - run.begin) % run.step != 0) continue;
    push({begin, j, run.step}, out);
    begin = j + run.step;
  }
  push({begin, run.end, run.step}, out);
}
}  // namespace

// Appends the keys of `run` from `low` on and below `high`.
void clip_run(const KeyRun& run, int64_t low, int64_t high, std::vector<KeyRun>& out) {
  push({std::max(run.begin, low), std::min(run.end, high), run.step}, out);
}

// Removes the keys of `taken` from runs[first], runs[first + 1] ...
void subtract_runs(const std::vector<KeyRun>& taken, std::size_t first, std::vector<KeyRun>& runs) {
  for (const KeyRun& other : taken) {
    std::vector<KeyRun> left;
    for (std::size_t r = first; r < runs.size(); ++r) cut(runs[r], other, left);
    runs.resize(first);
    runs.insert(runs.end(), left.begin(), left.end());
  }
}
}  // namespace weft
