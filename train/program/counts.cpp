// SPDX-License-Identifier: MIT
#include "train/program/counts.h"

#include "kernels/attention/select.h"
#include "src/config/names.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
std::size_t bytes_of(const TileTables& t) {
  std::size_t numbers = 0;
  for (const auto* list :
       {&t.query_order, &t.key_order, &t.row_start, &t.row_tile, &t.row_mask, &t.col_start,
        &t.col_tile, &t.col_mask, &t.row_schedule, &t.col_schedule})
    numbers += list->size();
  return numbers * sizeof(int32_t) +
         (t.masks.size() + t.masks_transposed.size()) * sizeof(uint64_t);
}

std::string parts_text(const AttentionPattern& pattern, int head) {
  std::vector<PatternPart> parts;
  pattern.parts(head, parts);
  return joined(parts, " + ", [](const PatternPart& part) { return part.pattern->name(); });
}

// The kernel that runs a pass forward over `n` positions of one sequence.
std::string kernel_on(const AttentionTarget& target, int heads, const AttentionPass& pass,
                      int64_t n) {
  if (target.compute_capability == 0) return "cpu";
  const attention::Problem problem{
      .dtype = target.dtype,
      .heads = heads,
      .time = n,
      .qk_size = target.qk_size,
      .v_size = target.v_size,
  };
  return name_of(attention::select(problem, pass, target.compute_capability));
}

template <class T>
std::string sum_text(const std::vector<T>& parts) {
  std::string text;
  for (auto it = parts.begin(); it != parts.end(); ++it)
    if (std::find(parts.begin(), it, *it) == it) text += str(text.empty() ? "" : " + ", *it);
  return text;
}

// A pass as it runs.
void add_pass(const AttentionTarget& target, int heads, int64_t n, const Band& band,
              const TileTables& tables, AttentionCounts& counts) {
  static constexpr int32_t kSomeReach = 1;
  AttentionPass pass;
  pass.edge = tables.edge, pass.band = band;
  if (target.documents) pass.reaches = &kSomeReach;
  counts.edges.push_back(pass.edge);
  counts.form.push_back(kernel_on(target, heads, pass, n));
  counts.table_bytes += bytes_of(tables);
}

// Of dynamic heads: at most so many pairs, in as many tiles.
void count_dynamic(const AttentionPattern& pattern, int heads, Lengths n,
                   const AttentionTarget& target, AttentionCounts& counts) {
  for (const DynamicRange& range : dynamic_ranges(pattern, heads))
    for (int64_t i = 0; i < range.heads.count; ++i) {
      const auto head = static_cast<int>(range.heads.head(i));
      if (std::ranges::count(counts.heads, head) == 0) continue;
      const PackedMaps maps(*range.tiles, 1, n, target.qk_size, kTile);
      counts.pairs += {needed_pairs(pattern, head, n), range.passes * maps.pairs(0).executed};
      if (i == 0) add_pass(target, heads, n.queries, {}, *maps.tables(0, 0), counts);
    }
}
}  // namespace

std::string AttentionCounts::edges_text() const { return sum_text(edges); }

std::string AttentionCounts::form_text() const { return sum_text(form); }

std::vector<AttentionCounts> count_attention(const AttentionPattern& pattern, int heads, Lengths n,
                                             const AttentionTarget& target) {
  const PackedMaps maps(pattern, heads, n, std::max(target.qk_size, target.v_size));
  std::vector<AttentionCounts> groups(maps.groups());
  for (int head = 0; head < heads; ++head) {
    AttentionCounts& counts = groups[pattern.group(head)];
    counts.heads.push_back(head);
    counts.pairs += maps.pairs(head);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    AttentionCounts& counts = groups[g];
    const auto head = static_cast<int>(counts.heads.at(0));
    counts.pattern = maps.groups() == 1 ? pattern.name() : parts_text(pattern, head);
    count_dynamic(pattern, heads, n, target, counts);
    for (int pass = 0; pass < maps.passes(); ++pass)
      if (const TileTables* tables = maps.tables(pass, static_cast<int>(g)))
        add_pass(target, heads, n.queries, maps.band(pass), *tables, counts);
  }
  return groups;
}

std::string numbers_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (std::size_t k = 0; k < numbers.size();) {
    std::size_t end = k + 1;  // numbers k .. end - 1 have equal distances
    while (end < numbers.size() && numbers[end] - numbers[end - 1] == numbers[k + 1] - numbers[k])
      ++end;
    const int64_t step = end > k + 1 ? numbers[k + 1] - numbers[k] : 0;
    text += text.empty() ? "" : ", ";
    if (end - k >= 3) {
      text += step == 1 ? str(numbers[k], "-", numbers[end - 1])
                        : str(numbers[k], ", ", numbers[k + 1], " .. ", numbers[end - 1]);
      k = end;
    } else {
      text += std::to_string(numbers[k++]);
    }
  }
  return text;
}

std::string grouped_digits(int64_t value) {
  std::string text = std::to_string(value);
  for (int64_t at = std::ssize(text) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    text.insert(at, 1, ',');
  return text;
}

std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> width;
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == width.size()) width.push_back(0);
      width[c] = std::max(width[c], row[c].size());
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(width[c] - row[c].size(), ' ');
      line += "  " + (c < left ? row[c] + padding : padding + row[c]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}
}  // namespace weft
