// SPDX-License-Identifier: MIT
// Sampling: the keys and values of one position on their way to the rows of the cache that AttentionDecode
// reads.
#pragma once

#include "kernels/attention.h"

namespace weft {

// A cache (B, R, D) as heads: each head may own any of its rows.
inline HeadsView rows_of(const TensorView& x, std::int64_t heads) {
  WEFT_CHECK(x.rank == 3, "rows_of: (B, rows, D), got ", shape_text(x));
  return {x.data, x.dtype, x.shape[0], x.shape[1], heads, x.shape[2], x.shape[1] * x.shape[2], x.shape[2], 0};
}

// k_cache[b, row[h], h] = k[b, 0, h] and the same for v. Rows of different heads must not be the same memory.
struct CacheWrite {
  static constexpr const char* kName = "cache_write";
  HeadsView k_cache;                  // (B, R, H, Dqk)  T
  HeadsView v_cache;                  // (B, R, H, Dv)   T
  HeadsView k;                        // (B, 1, H, Dqk)  T
  HeadsView v;                        // (B, 1, H, Dv)   T
  const std::int32_t* row = nullptr;  // (H)  in the queue's memory; -1: nothing is kept for this head
};
void check(const CacheWrite&);  // shapes and types; both forms begin with it
void run(CpuQueue&, const CacheWrite&);
void run(CudaQueue&, const CacheWrite&);

}  // namespace weft
