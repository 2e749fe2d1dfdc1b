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
  std::string device = "auto";              // a GPU if there is one
  std::string pattern = "fixed";            // all, local, strided or fixed
  int64_t length = 12288;                   // n
  int64_t heads = 0;                        // H; 0: 1 on the CPU, 16 on a GPU
  int64_t size = 64, stride = 128, c = 32;  // D, l, c
  std::vector<std::string> rungs = {};      // their names; none: all
  int rounds = 3;        // each round times every rung, so that noise meets all of them
  std::string png = {};  // the staircase; "": none
  bool json = false;
};

// One direction of a rung: the median of its runs; all 0 where the rung is about the other one.
struct Timed {
  double ms = 0, gflops = 0;  // GFLOP/s of the needed pairs
  double of_roofline = 0;     // the least possible time / ms
  double gain = 0;            // ms of the rung before that has one / ms; 0: the first rung
};

struct TimedRung {
  std::string name;
  Timed forward, backward;
};

// Checks every rung against the definition, at a small length for all four patterns and by sampled
// rows at the length that is timed; then times it. Error: a rung is wrong, or two runs differ in
// their bits where they should not. A row or a JSON object a rung. Without `rungs`: all of the
// device.
std::vector<TimedRung> bench_ladder(const BenchLadderOptions&, std::span<const Rung>,
                                    std::ostream& out);
}  // namespace weft::ladder
