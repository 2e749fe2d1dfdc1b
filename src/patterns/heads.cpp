// SPDX-License-Identifier: MIT
// heads: the patterns `of` taken in turn by the heads ("multiple heads ... separate patterns",
// arXiv 1904.10509 section 4.2): head h sees what of[h mod size] lets its head floor(h / size) see.
#include "src/patterns/combine.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
// How many of `heads` heads take pattern p of `size`.
int heads_of(std::size_t p, std::size_t size, int heads) {
  return static_cast<int>((heads - p + size - 1) / size);
}

class ByHead : public Composite {
 public:
  ByHead(Patterns of, int heads)
      : Composite("heads", std::move(of)) {
    // Equal names are equal patterns; with a single group their heads all see the same.
    std::map<std::string, int> known;
    std::vector<int> number;
    for (std::size_t p = 0; p < of_.size(); ++p) {
      const bool one = of_[p]->groups(heads_of(p, of_.size(), heads)) == 1;
      const auto fresh = static_cast<int>(p);
      number.push_back(one ? known.try_emplace(of_[p]->name(), fresh).first->second : fresh);
    }
    std::vector<std::vector<int>> sets;
    for (int head = 0; head < heads; ++head)
      sets.push_back({number[index(head)], inner(head).pattern->group(inner(head).head)});
    group_heads(sets);
  }

  bool attends(int head, int64_t i, int64_t j) const override {
    return inner(head).pattern->attends(inner(head).head, i, j);
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    inner(head).pattern->key_runs(inner(head).head, i, runs);
  }

  void parts(int head, std::vector<PatternPart>& parts) const override {
    inner(head).pattern->parts(inner(head).head, parts);
  }

  int64_t most_keys(int head) const override {
    return inner(head).pattern->most_keys(inner(head).head);
  }

  void dynamic(int heads, std::vector<DynamicRange>& out) const override {
    for (int p = 0; p < size(); ++p) {
      const std::size_t first = out.size();
      of_[static_cast<std::size_t>(p)]->dynamic(heads_of(p, of_.size(), heads), out);
      for (std::size_t i = first; i < out.size(); ++i) {
        HeadRange& range = out[i].heads;
        range = {p + size() * range.first, size() * range.step, range.count};
      }
    }
  }

 private:
  int size() const { return static_cast<int>(of_.size()); }

  std::size_t index(int head) const { return static_cast<std::size_t>(head % size()); }

  PatternPart inner(int head) const { return {of_[index(head)].get(), head / size()}; }
};

std::unique_ptr<AttentionPattern> make_heads(const PatternSpec& spec, int heads) {
  check_number_of_patterns(spec, 1, heads);
  std::vector<std::unique_ptr<AttentionPattern>> of;
  for (std::size_t p = 0; p < spec.of.size(); ++p)
    of.push_back(make_inner(spec, p, heads_of(p, spec.of.size(), heads)));
  return std::make_unique<ByHead>(std::move(of), heads);
}
}  // namespace

PatternKind heads_pattern() {
  return {
      "heads", "the patterns `of`, taken in turn by the heads", reads({"of"}), make_heads, {"of"}};
}
}  // namespace weft
