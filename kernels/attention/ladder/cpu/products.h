// SPDX-License-Identifier: MIT
// The idea of rung 4, which the rungs after it use, too: products of matrices whose sums stay in
// registers. Rung 3 loads and stores a sum for each of its terms.
#pragma once

#include "kernels/attention/attention.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace weft::ladder {
using Block = std::vector<float>;  // a matrix, row by row

constexpr float kNone = -std::numeric_limits<float>::infinity();  // the score of no pair
constexpr int kLanes = 16, kRows = 8;                             // of a product's registers
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

// Rows are filled up with zeros to whole registers.
inline int64_t padded(int64_t size) { return (size + kLanes - 1) / kLanes * kLanes; }

// The left factor of a product: element (r, i) is data[r * row + i * sum].
struct Left {
  const float* data;
  int64_t row, sum;
};

// c (rows, columns) += a (rows, sums) b (sums, columns), sums in order. Rows come in eights,
// columns in sixteens.
inline void multiply(float* c, Left a, const float* b, int64_t rows, int64_t sums,
                     int64_t columns) {
  for (int64_t first = 0; first < columns; first += kLanes)
    for (int64_t r = 0; r < rows; r += kRows) {
      Lanes total[kRows] = {};
      for (int64_t i = 0; i < sums; ++i) {
        Lanes x;
        std::memcpy(&x, b + i * columns + first, sizeof x);
#pragma GCC unroll 8
        for (int k = 0; k < kRows; ++k) total[k] += a.data[(r + k) * a.row + i * a.sum] * x;
      }
#pragma GCC unroll 8
      for (int k = 0; k < kRows; ++k) {
        Lanes before;
        float* to = c + (r + k) * columns + first;
        std::memcpy(&before, to, sizeof before);
        before += total[k];
        std::memcpy(to, &before, sizeof before);
      }
    }
}

// (rows, columns) -> (columns, rows)
inline Block transposed(const Block& x, int64_t rows) {
  const int64_t columns = std::ssize(x) / rows;
  Block out(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) out[c * rows + r] = x[r * columns + c];
  return out;
}
}  // namespace weft::ladder
