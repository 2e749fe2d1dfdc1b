// SPDX-License-Identifier: MIT
// What CUDA kernels need of a QkForm, and its arithmetic on eight features of a head.
#pragma once

#include "kernels/device/vector8.cuh"
#include "kernels/layers/rotary.h"

namespace weft {
struct QkAngles {
  const float* table;  // null: nothing is rotated
  const int32_t *offsets, *positions, *first_at;
  int64_t row_length;  // of positions
  int32_t places, size;
  float eps;
  bool norm;

  QkAngles(const QkForm& f, int64_t qk_size)
      : table(f.table.or_null<float>()),
        offsets(f.offsets.or_null<int32_t>()),
        positions(f.positions.or_null<int32_t>()),
        first_at(f.first_at),
        row_length(f.positions.cols()),
        places(static_cast<int32_t>(f.table.shape[0])),
        size(static_cast<int32_t>(qk_size)),
        eps(static_cast<float>(f.eps)),
        norm(f.norm) {}

  QkAngles() = default;

  // Angles of row `t` of sequence `b`, counted from first_at: cos and sin of each pair.
  __device__ __forceinline__ const float* row(int64_t b, int32_t t) const {
    if (first_at) t += __ldg(first_at);
    int32_t place = t;
    if (positions && t > 0) place = __ldg(positions + b * row_length + t - 1) + 1;
    if (offsets) place += __ldg(offsets + b);
    return table + static_cast<int64_t>(place % places) * size;
  }

  // Of the four pairs from `feature` on.
  __device__ __forceinline__ void read(float (&turn)[8], int64_t b, int32_t t, int feature) const {
    load(turn, row(b, t) + feature, 8, true);
  }
};

// x = rotate(scale * x), by the angles of `turn` or, with direction -1, back.
__device__ __forceinline__ void rotate_eight(float (&x)[8], float scale, const float (&turn)[8],
                                             float direction = 1) {
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float a = x[i] * scale, b = x[i + 1] * scale, sin = direction * turn[i + 1];
    x[i] = a * turn[i] - b * sin;
    x[i + 1] = a * sin + b * turn[i];
  }
}
}  // namespace weft
