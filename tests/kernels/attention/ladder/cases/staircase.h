// SPDX-License-Identifier: MIT
// The rungs as a picture: a step for each, as high as its GFLOP/s.
#pragma once

#include "tests/kernels/attention/ladder/cases/bench_ladder.h"
#include "train/program/png.h"

#include <vector>

namespace weft::ladder {
// Two panels, forward above backward, on logarithmic axes; a line shows the roofline. The last two
// arguments are its GFLOP/s. Large rates are written in TFLOP/s.
Image staircase(const std::vector<TimedRung>&, double forward_roof, double backward_roof);
}  // namespace weft::ladder
