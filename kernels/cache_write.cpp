// SPDX-License-Identifier: MIT
// The definition: a copy a head.
#include "kernels/cache_write.h"

#include <algorithm>

namespace weft {
namespace {

void check_pair(const char* name, const HeadsView& cache, const HeadsView& x, const HeadsView& q) {
  WEFT_CHECK(x.batch == q.batch && x.time == 1 && x.heads == q.heads && x.dtype == q.dtype,
             "cache_write: expected ", name, " of one position, ", q.batch, " sequences and ", q.heads,
             " heads of ", name_of(q.dtype), ", got (", x.batch, ", ", x.time, ", ", x.heads, ", ", x.size,
             ") ", name_of(x.dtype));
  WEFT_CHECK(
      cache.batch == x.batch && cache.heads == x.heads && cache.size == x.size && cache.dtype == x.dtype,
      "cache_write: the cache of ", name, " must be (", x.batch, ", rows, ", x.heads, ", ", x.size, ") ",
      name_of(x.dtype), ", got (", cache.batch, ", ", cache.time, ", ", cache.heads, ", ", cache.size, ") ",
      name_of(cache.dtype));
  WEFT_CHECK(x.data && (cache.data || cache.time == 0), "cache_write: ", name, " has no data");
}

template <class T>
void copy_row(const HeadsView& cache, const HeadsView& x, std::int64_t b, std::int64_t row, std::int64_t h) {
  const T* from = x.row<const T>(b, 0, h);
  std::copy(from, from + x.size, cache.row<T>(b, row, h));
}

}  // namespace

void check(const CacheWrite& w) {
  check_pair("k", w.k_cache, w.k, w.k);
  check_pair("v", w.v_cache, w.v, w.k);
  WEFT_CHECK(w.row, "cache_write: no rows");
}

void run(CpuQueue&, const CacheWrite& w) {
  check(w);
  dispatch_float(w.k.dtype, [&]<class T>() {
    for (std::int64_t b = 0; b < w.k.batch; ++b)
      for (std::int64_t h = 0; h < w.k.heads; ++h) {
        if (w.row[h] < 0) continue;
        copy_row<T>(w.k_cache, w.k, b, w.row[h], h);
        copy_row<T>(w.v_cache, w.v, b, w.row[h], h);
      }
  });
}

}  // namespace weft
