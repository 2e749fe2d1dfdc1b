// SPDX-License-Identifier: MIT
#include "kernels/sampling/gather_rows.h"
#include <algorithm>

namespace weft {
void check(const GatherRows& k) {
  WEFT_CHECK(k.y.rank == 3 && k.y.cols() == k.x.size && k.y.dtype == k.x.dtype,
             "gather_rows: y must be (B, R, ", k.x.size, ") of ", name_of(k.x.dtype), ", got ",
             shape_text(k.y), " of ", name_of(k.y.dtype));
  WEFT_CHECK(k.x.batch == 1 && k.x.time * k.x.heads <= INT32_MAX,
             "gather_rows: x must be one text with less than 2^31 rows of heads, got ", k.x.batch, " of ",
             k.x.time, " x ", k.x.heads);
  WEFT_CHECK(k.source || k.y.shape[1] == 0, "gather_rows: no source");
}

void compute(CpuQueue&, const GatherRows& k) {
  const int64_t rows = k.y.shape[1], heads = k.x.heads;
  dispatch_float(k.y.dtype, [&]<class T>() {
    for (int64_t i = 0; i < k.y.rows(); ++i)
      if (const int32_t from = k.source[i % rows]; from >= 0)
        std::copy_n(k.x.row<const T>(0, from / heads, from % heads), k.x.size, k.y.as<T>() + i * k.x.size);
  });
}
}  // namespace weft
