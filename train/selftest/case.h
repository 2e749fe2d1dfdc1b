// SPDX-License-Identifier: MIT
// One case of `selftest`: a random pattern with random sizes. All of it follows from a number, so that a case
// that fails can be run again alone.
#pragma once

#include "src/patterns/more/layout.h"
#include "train/attention/oracle.h"

namespace weft {

struct SelftestCase {
  std::uint32_t seed = 0;
  std::string kind;  // of the pattern
  std::unique_ptr<AttentionPattern> pattern;
  attention_oracle::Sizes size;
  DType dtype = DType::f32;
  int edge = attention_oracle::kBest;
  bool segments = false;

  Lengths lengths() const { return size.lengths(); }
  int heads() const { return static_cast<int>(size.heads); }
  std::string text() const;
};

// `cuda`: no f64.
SelftestCase make_selftest_case(std::uint32_t seed, bool cuda);

}  // namespace weft
