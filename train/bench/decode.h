// SPDX-License-Identifier: MIT
// `bench decode`: sampling in batches from a model with random weights.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace weft {

struct BenchDecodeOptions {
  std::string config;
  std::vector<std::string> overrides;  // "a.b=c"
  std::string device = "auto";
  std::int64_t batch = 8;
  std::int64_t positions = 0;  // of a text; 0: the context
  bool json = false;
};
// First compares cached logits with those of forward passes; throws Error when they disagree.
void bench_decode(const BenchDecodeOptions&, std::ostream& out);

}  // namespace weft
