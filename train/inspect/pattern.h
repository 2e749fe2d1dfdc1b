// SPDX-License-Identifier: MIT
// The part of `inspect` that looks at one head of one pattern, from a config or alone.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "train/inspect/report.h"
#include "train/program/counts.h"

namespace weft {

struct PatternView {
  const AttentionPattern& pattern;
  const PatternSpec& spec;
  int heads = 1, head = 0;
  Lengths n;
};

// Counts, receptive field and connectivity matrix as text, and the files that `options` ask for.
void show_pattern(const PatternView&, const InspectOptions&, const AttentionTarget&, std::ostream&);
// `inspect --attention`.
void inspect_attention(const InspectOptions&, std::ostream&);

// --length and --keys; errors name what works.
Lengths lengths_of(const InspectOptions&, std::int64_t otherwise);
// --pattern LAYER,HEAD.
std::pair<std::int64_t, int> read_layer_head(const std::string& text, std::int64_t layers,
                                             std::int64_t heads);
// Whether an option is given that needs a head to draw.
bool draws(const InspectOptions&);

// The table of counts: its head, and a row for a group of heads, the first cell empty.
std::vector<std::string> attention_columns();
std::vector<std::string> attention_row(const AttentionCounts&, Lengths);

}  // namespace weft
