// SPDX-License-Identifier: MIT
// Dropout whose mask is a function of where an element is, not of when it is asked for.
#pragma once

#include <cstdint>
#include <vector>

// What the mask may depend on.
struct Place {
  uint64_t seed = 0;      // of the run
  uint32_t update = 0;    // of the run
  uint32_t call = 0;      // of dropout within a forward pass
  int64_t first_row = 0;  // of the rows at hand, among those of the whole update
};

// x is a matrix of rows of `cols` numbers. Each number is dropped (0) with probability p, or
// divided by 1 - p.
std::vector<double> dropout(const std::vector<double>& x, int64_t cols, double p, const Place&);

// The gradient of x from that of the result.
std::vector<double> dropout_backward(const std::vector<double>& dy, int64_t cols, double p,
                                     const Place&);
