// SPDX-License-Identifier: MIT
// `bench decode`: sampling from a config's model with random weights, a batch of texts at a time.
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
// Cached logits are compared with those of whole forward passes first; throws Error when they disagree.
void bench_decode(const BenchDecodeOptions&, std::ostream& out);

}  // namespace weft
