// SPDX-License-Identifier: MIT
// The modifiers of any pattern: `prefix` (later keys are seen only below `prefix`), `documents` (no
// query sees across a border) and `length` (positions from there on are padding). They leave one
// interval of S_i.
#include "src/patterns/combine.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
struct Limits {
  int64_t prefix = 0;
  std::vector<int64_t> documents;
  int64_t length = 0;

  // The keys that query i may see at most.
  KeyRun interval(int64_t i) const {
    int64_t low = 0, high = length ? length : kMaxPositions;
    if (length && i >= length) high = 0;
    if (prefix) high = std::min(high, std::max(prefix, i + 1));
    const auto next = std::ranges::upper_bound(documents, i);
    if (next != documents.begin()) low = next[-1];
    if (next != documents.end()) high = std::min(high, *next);
    return {low, high};
  }

  std::string text() const {
    std::string s;
    if (prefix) s += str(", prefix ", prefix);
    if (!documents.empty()) {
      s += ", documents";
      for (const int64_t first : documents) s += str(" ", first);
    }
    if (length) s += str(", length ", length);
    return s.substr(2);
  }
};

// A pattern, or a part of one, within the limits.
class Limited : public AttentionPattern {
 public:
  Limited(const AttentionPattern& base, const Limits& limits)
      : base_(base),
        limits_(limits) {}

  std::string name() const override { return base_.name() + " with " + limits_.text(); }

  bool attends(int head, int64_t i, int64_t j) const override {
    const KeyRun may = limits_.interval(i);
    return may.begin <= j && j < may.end && base_.attends(head, i, j);
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    const KeyRun may = limits_.interval(i);
    if (may.size() == 0) return;
    std::vector<KeyRun> all;
    base_.key_runs(head, i, all);
    for (const KeyRun& run : all) clip_run(run, may.begin, may.end, runs);
  }

  bool causal() const override { return base_.causal() || limits_.prefix == 1; }

  Lengths lengths() const override { return base_.lengths(); }

  int groups(int heads) const override { return base_.groups(heads); }

  int group(int head) const override { return base_.group(head); }

  int64_t query_slot(int head, int64_t i, int64_t n) const override {
    return base_.query_slot(head, i, n);
  }

  int64_t key_slot(int head, int64_t j, int64_t n) const override {
    return base_.key_slot(head, j, n);
  }

 private:
  const AttentionPattern& base_;
  const Limits& limits_;
};

struct Owned {
  std::unique_ptr<AttentionPattern> pattern;
  Limits limits;
};

class Modified : private Owned, public Limited {
 public:
  Modified(std::unique_ptr<AttentionPattern> base, Limits limits, int heads)
      : Owned{std::move(base), std::move(limits)},
        Limited(*Owned::pattern, Owned::limits) {
    std::vector<PatternPart> parts;
    for (int head = 0; head < heads; ++head) pattern->parts(head, parts);
    for (const PatternPart& part : parts) {
      auto& limited = parts_[part.pattern];
      if (!limited) limited = std::make_unique<Limited>(*part.pattern, Owned::limits);
    }
  }

  void parts(int head, std::vector<PatternPart>& parts) const override {
    const std::size_t first = parts.size();
    pattern->parts(head, parts);
    for (std::size_t p = first; p < parts.size(); ++p)
      parts[p].pattern = parts_.at(parts[p].pattern).get();
  }

 private:
  std::map<const AttentionPattern*, std::unique_ptr<Limited>> parts_;
};
}  // namespace

std::unique_ptr<AttentionPattern> modified(std::unique_ptr<AttentionPattern> base,
                                           const PatternSpec& spec, int heads) {
  const auto check = [&](const char* field, int64_t value) {
    if (value < 0 || value > kMaxPositions)
      refuse_pattern(spec.kind, field, " must be between 0 and ", kMaxPositions, ", got ", value);
  };
  check("prefix", spec.prefix);
  check("length", spec.length);
  for (std::size_t d = 0; d < spec.documents.size(); ++d) {
    check("documents", spec.documents[d]);
    if (d > 0 && spec.documents[d] <= spec.documents[d - 1])
      refuse_pattern(spec.kind, "documents must ascend, got ", spec.documents[d], " after ",
                     spec.documents[d - 1]);
  }
  if (spec.prefix == 0 && spec.documents.empty() && spec.length == 0) return base;
  refuse_dynamic(*base, heads, "prefix, documents or length");
  if (spec.prefix && base->causal())
    refuse_pattern(spec.kind, "prefix lets queries see later keys, and ", base->name(),
                   " sees none; set causal: false, or leave prefix out");
  return std::make_unique<Modified>(std::move(base),
                                    Limits{spec.prefix, spec.documents, spec.length}, heads);
}
}  // namespace weft
