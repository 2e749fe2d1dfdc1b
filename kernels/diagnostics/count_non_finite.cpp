// SPDX-License-Identifier: MIT
#include "kernels/diagnostics/count_non_finite.h"

#include "kernels/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace weft {
void check(const CountNonFinite& k) {
  expect_floating(k.x, "count_non_finite: x");
  expect_size(k.count, DType::i32, 1, "count_non_finite: count");
}

void compute(CpuQueue&, const CountNonFinite& k) {
  int64_t count = 0;
  dispatch_float(k.x.dtype, [&]<class T>() {
    const T* x = k.x.as<T>();
#pragma omp parallel for schedule(static) reduction(+ : count) if (k.x.size() > kParallelElements)
    for (int64_t i = 0; i < k.x.size(); ++i) count += !std::isfinite(static_cast<wide_t<T>>(x[i]));
  });
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  *k.count.as<int32_t>() = static_cast<int32_t>(std::min(count, kMost));
}
}  // namespace weft
