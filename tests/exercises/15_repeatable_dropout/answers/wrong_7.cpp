// SPDX-License-Identifier: MIT
// Wrong: a gradient is scaled, but every one passes: dropped numbers have none.
// Rejected with: the backward pass multiplies by 1.33333333
#include "kernels/philox.h"
#include "tests/exercises/15_repeatable_dropout/exercise.h"

#include <cstddef>

std::vector<double> dropout(const std::vector<double>& x, int64_t cols, double p,
                            const Place& place) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const uint64_t element = static_cast<uint64_t>(place.first_row * cols) + i;
    const weft::Philox4 counter{static_cast<uint32_t>(element),
                                static_cast<uint32_t>(element >> 32), place.call, place.update};
    const double random = weft::philox4x32(counter, place.seed)[0] * 0x1p-32;
    y[i] = random < p ? 0 : x[i] / (1 - p);
  }
  return y;
}

std::vector<double> dropout_backward(const std::vector<double>& dy, int64_t cols, double p,
                                     const Place& place) {
  std::vector<double> dx;
  for (const double value : dy) dx.push_back(value / (1 - p));
  return dx;
}
