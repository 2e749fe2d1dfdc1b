// SPDX-License-Identifier: MIT
// routing, lsh and topk_blocks: their numbers, and the static tables that they stand on.
#pragma once

#include "src/patterns/pattern.h"

#include <memory>

namespace weft {
PatternKind routing_pattern();
PatternKind lsh_pattern();
PatternKind topk_blocks_pattern();

inline constexpr int64_t kMostLabels = 1024;  // clusters, or buckets that are asked for

bool has_labels(const PatternSpec&);  // routing and lsh, whose keys are made of queries
int64_t rounds_of(const PatternSpec&);
// lsh: the even number whose square is the number of buckets, of a model of that context.
int64_t hash_columns(const PatternSpec&, int64_t context);
int64_t labels_of(const PatternSpec&, int64_t context);  // routing, lsh: different labels
// The pattern of slots, or of blocks, in which content takes the place of neighbours.
std::unique_ptr<AttentionPattern> slots_of(const PatternSpec&);
}  // namespace weft
