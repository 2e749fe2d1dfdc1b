// SPDX-License-Identifier: MIT
// heads: the patterns `of` taken in turn by the heads ("multiple heads ... separate patterns", arXiv
// 1904.10509 section 4.2): head h sees what of[h mod size] lets its head floor(h / size) see. Reads `of`.
#include <algorithm>
#include <map>

#include "src/patterns/combine.h"

namespace weft {
namespace {

class ByHead : public AttentionPattern {
 public:
  ByHead(Patterns of, int heads) : of_(std::move(of)) {
    // Equal names are equal patterns; with a single group their heads all see the same.
    std::map<std::string, int> known;
    std::vector<int> number;
    for (std::size_t p = 0; p < of_.size(); ++p) {
      const bool one = of_[p]->groups(heads_of(p, heads)) == 1;
      const auto fresh = static_cast<int>(p);
      number.push_back(one ? known.try_emplace(of_[p]->name(), fresh).first->second : fresh);
    }
    std::vector<std::vector<int>> sets;
    for (int head = 0; head < heads; ++head)
      sets.push_back({number[index(head)], inner(head).pattern->group(inner(head).head)});
    group_ = numbered(sets, groups_);
  }
  // How many of `heads` heads take of[p].
  int heads_of(std::size_t p, int heads) const { return (heads - static_cast<int>(p) + size() - 1) / size(); }

  std::string name() const override { return "heads(" + joined_names(of_) + ")"; }
  bool attends(int head, std::int64_t i, std::int64_t j) const override {
    return inner(head).pattern->attends(inner(head).head, i, j);
  }
  void key_runs(int head, std::int64_t i, std::vector<KeyRun>& runs) const override {
    inner(head).pattern->key_runs(inner(head).head, i, runs);
  }
  bool causal() const override { return all_causal(of_); }
  Lengths lengths() const override { return common_lengths(of_); }
  int groups(int) const override { return groups_; }
  int group(int head) const override { return group_.at(head); }
  void parts(int head, std::vector<PatternPart>& parts) const override {
    inner(head).pattern->parts(inner(head).head, parts);
  }

 private:
  int size() const { return static_cast<int>(of_.size()); }
  std::size_t index(int head) const { return static_cast<std::size_t>(head % size()); }
  PatternPart inner(int head) const { return {of_[index(head)].get(), head / size()}; }

  Patterns of_;
  std::vector<int> group_;  // by head
  int groups_ = 0;
};

std::unique_ptr<AttentionPattern> make_heads(const PatternSpec& spec, int heads) {
  check_number_of_patterns(spec, 1, static_cast<std::size_t>(heads));
  const int size = static_cast<int>(spec.of.size());
  Patterns of;
  for (int p = 0; p < size; ++p)
    of.push_back(make_inner(spec, static_cast<std::size_t>(p), (heads - p + size - 1) / size));
  return std::make_unique<ByHead>(std::move(of), heads);
}

}  // namespace

PatternKind heads_pattern() {
  return {"heads", "the patterns `of`, taken in turn by the heads", reads({"of"}), make_heads};
}

}  // namespace weft
