// SPDX-License-Identifier: MIT
// longformer: the dilated sliding window, and global positions (Beltagy et al. 2020, arXiv
// 2004.05150, section 3.1). With w = `window`, d = `dilation`[head mod its length] and G =
// `globals`:
//   causal: S_i = {j : j <= i, and i in G or j in G or (i - j = 0 mod d and (i - j) / d < w)}
//   else:   S_i = {j : i in G or j in G or (i - j = 0 mod d and |i - j| / d <= w / 2)}
// Causal windows hold w keys, the own one included; bidirectional ones hold w / 2 (rounded down) on
// each side and the own one, as in the authors' code. Slots: the global positions first, packed;
// then column after column of positions with the same remainder mod d, in which a dilated window is
// a plain one.
#include "src/patterns/combine.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
class Longformer : public AttentionPattern {
 public:
  // `globals` ascend.
  Longformer(const PatternSpec& spec, std::vector<int64_t> globals, int heads)
      : window_(spec.window),
        causal_(spec.causal),
        globals_(std::move(globals)) {
    for (int head = 0; head < heads; ++head) {
      const int64_t d = spec.dilation[static_cast<std::size_t>(head) % spec.dilation.size()];
      const auto known = std::ranges::find(dilation_, d);
      group_of_head_.push_back(static_cast<int>(known - dilation_.begin()));
      if (known == dilation_.end()) dilation_.push_back(d);
    }
    name_ = str("longformer(window ", window_, ", dilation ", list_text(spec.dilation),
                ", globals ", list_text(globals_), causal_ ? "" : ", bidirectional", ")");
  }

  std::string name() const override { return name_; }

  bool causal() const override { return causal_; }

  int groups(int) const override { return static_cast<int>(dilation_.size()); }

  int group(int head) const override { return group_of_head_.at(head); }

  bool attends(int head, int64_t i, int64_t j) const override {
    if (causal_ && j > i) return false;
    return is_global(i) || is_global(j) || in_window(head, i, j);
  }

  void key_runs(int head, int64_t i, std::vector<KeyRun>& runs) const override {
    const int64_t last = causal_ ? i : kMaxPositions - 1;  // that i may see
    if (is_global(i)) {
      runs.push_back({0, last + 1});
      return;
    }
    const int64_t d = dilation(head), first = std::max(i % d, i - back() * d),
                  end = i + ahead() * d + 1;
    runs.push_back({first, end, d});
    const std::size_t behind_window = runs.size();
    for (const int64_t j : globals_) {
      if (j > last) break;
      if (!in_window(head, i, j)) append_run(j, j + 1, behind_window, runs);
    }
  }

  // Globals leave their places in the columns empty, so that slots follow from the position alone.
  int64_t query_slot(int head, int64_t i, int64_t n) const override {
    const auto place = std::ranges::lower_bound(globals_, i);
    if (place != globals_.end() && *place == i) return place - globals_.begin();
    const auto globals = std::ranges::lower_bound(globals_, n) - globals_.begin();
    const int64_t d = dilation(head), column = i % d;
    return globals + column * (n / d) + std::min(column, n % d) + i / d;
  }

 private:
  int64_t dilation(int head) const { return dilation_[group(head)]; }

  int64_t back() const { return causal_ ? window_ - 1 : window_ / 2; }

  int64_t ahead() const { return causal_ ? 0 : window_ / 2; }

  bool is_global(int64_t i) const { return std::ranges::binary_search(globals_, i); }

  bool in_window(int head, int64_t i, int64_t j) const {
    const int64_t d = dilation(head);
    return (i - j) % d == 0 && (i - j) / d <= back() && (j - i) / d <= ahead();
  }

  int64_t window_;
  bool causal_;
  std::vector<int64_t> globals_;
  std::vector<int64_t> dilation_;  // of each group
  std::vector<int> group_of_head_;
  std::string name_;
};

std::unique_ptr<AttentionPattern> make_longformer(const PatternSpec& spec, int heads) {
  require_pattern_field("longformer", "window", spec.window);
  if (spec.dilation.empty())
    refuse_pattern("longformer",
                   "dilation must list at least one number, got none; "
                   "[1] is a plain window");
  for (const int64_t d : spec.dilation) check_pattern_field("longformer", "dilation", d);
  return std::make_unique<Longformer>(spec, ascending_globals("longformer", spec.globals), heads);
}
}  // namespace

PatternKind longformer_pattern() {
  return {"longformer",
          "a window of `window` keys, `dilation` apart (heads in turn), and `globals`, which see "
          "all and are "
          "seen",
          reads({"window", "dilation", "globals", "causal"}),
          make_longformer,
          {"window"}};
}
}  // namespace weft
