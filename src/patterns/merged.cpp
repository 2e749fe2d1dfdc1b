// SPDX-License-Identifier: MIT
// merged: one head sees the union of what the patterns `of` see, "merged head" attention of arXiv
// 1904.10509 section 4.2. Each inner pattern less the earlier ones is a part, in the inner
// pattern's own order of slots.
#include "src/patterns/combine.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
// The runs of `of`, less the keys that earlier patterns see already, appended.
void remaining_runs(PatternPart of, const std::vector<PatternPart>& earlier, int64_t i,
                    std::vector<KeyRun>& runs) {
  const std::size_t first = runs.size();
  of.pattern->key_runs(of.head, i, runs);
  std::vector<KeyRun> taken;
  for (const PatternPart& e : earlier) e.pattern->key_runs(e.head, i, taken);
  subtract_runs(taken, first, runs);
}

// A part of one head: what one pattern sees and no earlier one.
class Remainder : public AttentionPattern {
 public:
  Remainder(PatternPart of, std::vector<PatternPart> earlier)
      : of_(of),
        earlier_(std::move(earlier)) {}

  std::string name() const override {
    std::string text = of_.pattern->name() + " less ";
    for (const PatternPart& e : earlier_)
      text += (&e == earlier_.data() ? "" : " and ") + e.pattern->name();
    return text;
  }

  bool attends(int, int64_t i, int64_t j) const override {
    return of_.pattern->attends(of_.head, i, j) &&
           std::ranges::none_of(
               earlier_, [&](const PatternPart& e) { return e.pattern->attends(e.head, i, j); });
  }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    remaining_runs(of_, earlier_, i, runs);
  }

  bool causal() const override { return of_.pattern->causal(); }

  Lengths lengths() const override { return of_.pattern->lengths(); }

  // A band less a window of the nearest positions is a band.
  Band band(int, int64_t n) const override {
    Band rest = of_.pattern->band(of_.head, n);
    const Band window = earlier_[0].pattern->band(earlier_[0].head, n);
    if (!rest || earlier_.size() > 1 || window.stride != 1 || window.skip != 0) return {};
    rest.skip = std::max(rest.skip, (window.reach + rest.stride - 1) / rest.stride);
    return rest;
  }

  int64_t query_slot(int, int64_t i, int64_t n) const override {
    return of_.pattern->query_slot(of_.head, i, n);
  }

  int64_t key_slot(int, int64_t j, int64_t n) const override {
    return of_.pattern->key_slot(of_.head, j, n);
  }

 private:
  PatternPart of_;
  std::vector<PatternPart> earlier_;
};

class Merged : public Composite {
 public:
  Merged(Patterns of, int heads)
      : Composite("merged", std::move(of)) {
    std::vector<std::vector<int>> sets(heads);
    for (int head = 0; head < heads; ++head)
      for (const auto& pattern : of_) sets[head].push_back(pattern->group(head));
    group_heads(sets);
    for (int head = 0; head < heads; ++head)
      if (group(head) == static_cast<int>(parts_.size())) make_parts(head);
  }

  bool attends(int head, int64_t i, int64_t j) const override {
    return std::ranges::any_of(of_, [&](const auto& p) { return p->attends(head, i, j); });
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    std::vector<PatternPart> earlier;
    for (const auto& pattern : of_) {
      remaining_runs({pattern.get(), head}, earlier, i, runs);
      earlier.push_back({pattern.get(), head});
    }
  }

  void parts(int head, std::vector<PatternPart>& parts) const override {
    const auto& mine = parts_[group(head)];
    parts.insert(parts.end(), mine.begin(), mine.end());
  }

 private:
  // Of the group that `head` is the first of.
  void make_parts(int head) {
    std::vector<PatternPart> earlier, all;
    for (const auto& pattern : of_) {
      std::vector<PatternPart> inner;
      pattern->parts(head, inner);
      for (const PatternPart& part : inner) {
        if (!earlier.empty()) remainders_.push_back(std::make_unique<Remainder>(part, earlier));
        all.push_back(earlier.empty() ? part : PatternPart{remainders_.back().get(), head});
      }
      earlier.push_back({pattern.get(), head});
    }
    constexpr std::size_t kMost = AttentionMaps::kMaxPasses / 2;
    if (all.size() > kMost)
      refuse_pattern("merged", "a union of at most ", kMost, " patterns, got ", all.size(),
                     ", those of inner unions included");
    parts_.push_back(std::move(all));
  }

  std::vector<std::unique_ptr<Remainder>> remainders_;
  std::vector<std::vector<PatternPart>> parts_;  // by group
};

std::unique_ptr<AttentionPattern> make_merged(const PatternSpec& spec, int heads) {
  check_number_of_patterns(spec, 2, AttentionMaps::kMaxPasses / 2);
  std::vector<std::unique_ptr<AttentionPattern>> of;
  for (std::size_t p = 0; p < spec.of.size(); ++p) {
    of.push_back(make_inner(spec, p, heads));
    refuse_dynamic(*of.back(), heads, "attention pattern 'merged'");
  }
  return std::make_unique<Merged>(std::move(of), heads);
}
}  // namespace

PatternKind merged_pattern() {
  return {"merged",
          "what any of the patterns `of` sees, in one softmax",
          reads({"of"}),
          make_merged,
          {"of"}};
}
}  // namespace weft
