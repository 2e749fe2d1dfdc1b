// SPDX-License-Identifier: MIT
// `bench attention --f16-against-bf16`: both types in turn in one process, at the power limit and rested.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "src/device.h"
#include "train/bench/attention.h"

namespace weft {

// Two rows a pattern, forward and forward + backward, each with both types. Sustained: in turn each type runs
// for 0.3 s, then 0.3 s are timed, in four rounds, of which each type begins two. Rested: in turn single runs
// after `pause_ms` (of options; 20 where it is 0). Each type is checked against f64 first, if options.verify.
void bench_f16_against_bf16(Device&, const AttentionBenchShape&, const std::vector<std::string>& modes,
                            const BenchAttentionOptions&, std::ostream& out);
// Heads the columns of such rows, where they are not JSON.
void print_f16_against_bf16_head(std::ostream& out);

}  // namespace weft
