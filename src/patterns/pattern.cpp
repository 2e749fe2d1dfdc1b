// SPDX-License-Identifier: MIT
// The table of patterns, and what all of them share.
#include "src/patterns/pattern.h"

#include "src/config/names.h"
#include "src/parts/parts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
// Each is in the file of src/patterns/ that has its name.
PatternKind all_pattern();
PatternKind local_pattern();
PatternKind strided_pattern();
PatternKind fixed_pattern();
PatternKind block_pattern();
PatternKind summary_pattern();
PatternKind merged_pattern();
PatternKind heads_pattern();
// src/patterns/modified.cpp: the pattern within its prefix, documents and length.
std::unique_ptr<AttentionPattern> modified(std::unique_ptr<AttentionPattern>, const PatternSpec&,
                                           int heads);

namespace {
std::vector<PatternKind>& table() {
  static std::vector<PatternKind> kinds = {
      all_pattern(),   local_pattern(),   strided_pattern(), fixed_pattern(),
      block_pattern(), summary_pattern(), merged_pattern(),  heads_pattern(),
  };
  return kinds;
}
}  // namespace

void add_pattern(PatternKind kind) { table().push_back(std::move(kind)); }

const std::vector<PatternKind>& patterns() {
  register_parts();
  return table();
}

namespace {
const PatternKind& kind_of(const PatternSpec& spec) {
  std::vector<std::string> known;
  for (const PatternKind& entry : patterns()) {
    if (spec.kind == entry.kind) return entry;
    known.push_back(entry.kind);
  }
  if (const std::string absent = absent_part_text(spec.kind); !absent.empty())
    fail("attention pattern ", absent);
  const std::string nearest = nearest_name(spec.kind, known);
  fail("unknown attention pattern '", spec.kind, "'; known: ", joined(known),
       nearest.empty() ? "" : str("; did you mean '", nearest, "'?"));
}
}  // namespace

std::function<std::vector<std::string>(const PatternSpec&)> reads(std::vector<std::string> fields) {
  return [fields = std::move(fields)](const PatternSpec&) { return fields; };
}

std::vector<std::string> fields_read(const PatternSpec& spec) {
  std::vector<std::string> fields = kind_of(spec).fields(spec);
  fields.insert(fields.begin(), "kind");
  fields.insert(fields.end(), {"prefix", "documents", "length"});
  return fields;
}

const std::vector<std::string>& required_fields(const PatternSpec& spec) {
  return kind_of(spec).required;
}

std::unique_ptr<AttentionPattern> make_pattern(const PatternSpec& spec, int heads) {
  WEFT_CHECK(heads >= 1, "attention needs at least one head, got ", heads);
  return modified(kind_of(spec).make(spec, heads), spec, heads);
}

void check_pattern_field(const char* kind, const char* field, int64_t value) {
  if (value < 1 || value > kMaxPositions)
    refuse_pattern(kind, field, " must be between 1 and ", kMaxPositions, ", got ", value);
}

void require_pattern_field(const char* kind, const char* field, int64_t value) {
  if (value == 0) refuse_pattern(kind, field, " is required, a number from 1 to ", kMaxPositions);
  check_pattern_field(kind, field, value);
}

std::vector<int64_t> ascending_globals(const char* kind, std::vector<int64_t> globals) {
  std::ranges::sort(globals);
  for (std::size_t k = 0; k < globals.size(); ++k) {
    if (globals[k] < 0 || globals[k] >= kMaxPositions)
      refuse_pattern(kind, "globals must be between 0 and ", kMaxPositions - 1, ", got ",
                     globals[k]);
    if (k > 0 && globals[k] == globals[k - 1])
      refuse_pattern(kind, "globals must be different, got ", globals[k], " twice");
  }
  return globals;
}

std::string list_text(const std::vector<int64_t>& numbers) { return "[" + joined(numbers) + "]"; }

void AttentionPattern::keys_of(int head, int64_t i, int64_t keys, std::vector<int32_t>& out) const {
  std::vector<KeyRun> runs;
  key_runs(head, i, runs);
  const auto first = static_cast<std::ptrdiff_t>(out.size());
  for (const KeyRun& run : runs)
    for (int64_t j = run.begin; j < std::min(run.end, keys); j += run.step)
      out.push_back(static_cast<int32_t>(j));
  if (!std::is_sorted(out.begin() + first, out.end())) std::sort(out.begin() + first, out.end());
}

int64_t keys_in(const std::vector<KeyRun>& runs, int64_t keys) {
  int64_t sum = 0;
  for (const KeyRun& run : runs) sum += KeyRun{run.begin, std::min(run.end, keys), run.step}.size();
  return sum;
}

int64_t needed_pairs(const AttentionPattern& pattern, int head, Lengths n) {
  std::vector<KeyRun> runs;
  int64_t pairs = 0;
  for (int64_t i = 0; i < n.queries; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    const int64_t keys = keys_in(runs, n.keys), most = pattern.most_keys(head);
    pairs += most ? std::min(keys, most) : keys;
  }
  return pairs;
}

std::vector<DynamicRange> dynamic_ranges(const AttentionPattern& pattern, int heads) {
  std::vector<DynamicRange> ranges;
  pattern.dynamic(heads, ranges);
  return ranges;
}

void refuse_dynamic(const AttentionPattern& pattern, int heads, const char* who) {
  if (!dynamic_ranges(pattern, heads).empty())
    fail(who, " takes patterns of positions alone, and ", pattern.name(), " depends on content");
}
}  // namespace weft
