// SPDX-License-Identifier: MIT
// Dropout masks of the CPU forms, and what both forms check. kernels/philox.h says which elements
// are dropped.
#pragma once

#include "kernels/philox.h"
#include "kernels/step_scalars.h"
#include "kernels/view.h"

#include <algorithm>

namespace weft {
inline void check_dropout(double p, const StepScalars* step, const char* kernel) {
  WEFT_CHECK(p >= 0 && dropout_threshold(p) < 65536, kernel, ": 0 <= p < 1, got ", p);
  WEFT_CHECK(p == 0 || step, kernel, ": p > 0 needs StepScalars");
}

// Kept elements are multiplied with 1 / (1 - p).
inline double dropout_scale(uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

// Element i of a matrix of `cols` columns is element first_row * cols + i of the update's.
class DropoutMask {
 public:
  DropoutMask(double p, uint32_t site, const StepScalars* step, int64_t cols)
      : threshold_(dropout_threshold(p)),
        site_(site),
        seed_(threshold_ ? step->seed : 0),
        draw_(threshold_ ? step->draw : 0),
        before_(threshold_ ? step->first_row * cols : 0) {}

  double scale() const { return dropout_scale(threshold_); }

  // Calls visit(i, kept) for each element i of [begin, end), in order.
  template <class Visit>
  void over(int64_t begin, int64_t end, Visit visit) const {
    for (int64_t i = begin; threshold_ == 0 && i < end; ++i) visit(i, true);
    for (int64_t e = before_ + begin; threshold_ > 0 && e < before_ + end;) {
      const Philox4 bits =
          philox4x32(dropout_counter(static_cast<uint64_t>(e / 8), site_, draw_), seed_);
      for (const int64_t last = std::min(before_ + end, e / 8 * 8 + 8); e < last; ++e)
        visit(e - before_, ((bits[e % 8 / 2] >> (16 * (e % 2))) & 0xffffu) >= threshold_);
    }
  }

 private:
  uint32_t threshold_, site_;
  uint64_t seed_, draw_;
  int64_t before_;  // elements of the update before the first of this matrix
};
}  // namespace weft
