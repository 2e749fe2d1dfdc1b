// SPDX-License-Identifier: MIT
// Runs cut by runs: a run less an interval is two runs; less a run in steps, the pieces between its
// keys.
#include "src/patterns/combine.h"

#include "src/config/names.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
// The smallest begin + k * step (k >= 0) that is at least `low`.
int64_t first_from(const KeyRun& run, int64_t low) {
  if (low <= run.begin) return run.begin;
  return run.begin + (low - run.begin + run.step - 1) / run.step * run.step;
}

void push(const KeyRun& run, std::vector<KeyRun>& out) {
  if (run.begin < run.end) out.push_back(run);
}

void subtract(const KeyRun& run, const KeyRun& taken, std::vector<KeyRun>& out) {
  if (taken.size() == 0 || taken.begin >= run.end || taken.end <= run.begin) return push(run, out);
  // all keys of the run have the same remainder: they meet all or none
  if (run.step % taken.step == 0) {
    if ((run.begin - taken.begin) % taken.step != 0) return push(run, out);
    const int64_t after = taken.begin + (taken.size() - 1) * taken.step + 1;
    push({run.begin, std::min(run.end, taken.begin), run.step}, out);
    return push({first_from(run, after), run.end, run.step}, out);
  }
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

void clip_run(const KeyRun& run, int64_t low, int64_t high, std::vector<KeyRun>& out) {
  push({first_from(run, low), std::min(run.end, high), run.step}, out);
}

void append_run(int64_t begin, int64_t end, std::size_t first, std::vector<KeyRun>& runs) {
  if (runs.size() > first && runs.back().end == begin && runs.back().step == 1)
    runs.back().end = end;
  else
    runs.push_back({begin, end});
}

void subtract_runs(const std::vector<KeyRun>& taken, std::size_t first, std::vector<KeyRun>& runs) {
  std::vector<KeyRun> left;
  for (const KeyRun& cut : taken) {
    const auto begin = runs.begin() + first;
    const auto meets = [&](const KeyRun& run) {
      return cut.begin < run.end && run.begin < cut.end;
    };
    if (std::none_of(begin, runs.end(), meets)) continue;
    left.clear();
    for (auto run = begin; run != runs.end(); ++run) subtract(*run, cut, left);
    runs.resize(first);
    runs.insert(runs.end(), left.begin(), left.end());
  }
}

std::unique_ptr<AttentionPattern> make_inner(const PatternSpec& outer, std::size_t index,
                                             int heads) {
  try {
    return make_pattern(outer.of[index], heads);
  } catch (const Error& e) {
    refuse_pattern(outer.kind, "of[", index, "]: ", e.what());
  }
}

void check_number_of_patterns(const PatternSpec& outer, std::size_t low, std::size_t high) {
  if (outer.of.size() < low || outer.of.size() > high)
    refuse_pattern(outer.kind, "of must list ", low, " to ", high, " patterns, got ",
                   outer.of.size());
}

std::string Composite::name() const {
  return str(kind_, "(", joined(of_, ", ", [](const auto& pattern) { return pattern->name(); }),
             ")");
}

bool Composite::causal() const {
  return std::ranges::all_of(of_, [](const auto& p) { return p->causal(); });
}

Lengths Composite::lengths() const {
  const auto shorter = [](int64_t a, int64_t b) {
    return a == 0 || b == 0 ? a + b : std::min(a, b);
  };
  Lengths n;
  for (const auto& pattern : of_) {
    const Lengths other = pattern->lengths();
    n = {shorter(n.queries, other.queries), shorter(n.keys, other.keys)};
  }
  return n;
}

void Composite::group_heads(const std::vector<std::vector<int>>& seen) {
  std::map<std::vector<int>, int> known;
  for (const std::vector<int>& numbers : seen)
    group_.push_back(known.try_emplace(numbers, static_cast<int>(known.size())).first->second);
  groups_ = static_cast<int>(known.size());
}
}  // namespace weft
