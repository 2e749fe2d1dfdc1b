// SPDX-License-Identifier: MIT
// The command `bench ladder`. It lies here because it checks the rungs with the cases of tests/.
#pragma once

#include "kernels/attention/ladder/ladder.h"

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace weft::ladder {
struct BenchLadderOptions {
  std::string device = "cpu";     // the rungs of CUDA are not there yet
  std::string pattern = "fixed";  // all, local, strided or fixed
  int64_t length = 12288, heads = 1, size = 64, stride = 128, c = 32;  // n, H, D, l, c
  int rounds = 3;        // each round times every rung, so that noise meets all of them
  std::string png = {};  // the staircase; "": none
  bool json = false;
};

// One direction of a rung: the median of its runs.
struct Timed {
  double ms = 0, gflops = 0;  // GFLOP/s of the needed pairs
  double of_roofline = 0;     // the least possible time / ms
  double gain = 0;            // ms of the rung before / ms; 0: the first rung
};

struct TimedRung {
  std::string name;
  Timed forward, backward;
};

// Checks every rung against the definition, at a small length for all four patterns and by sampled
// rows at the length that is timed; then times it. Error: a rung is wrong. A row or a JSON object a
// rung.
std::vector<TimedRung> bench_ladder(const BenchLadderOptions&, std::span<const Rung>,
                                    std::ostream& out);
}  // namespace weft::ladder
