// SPDX-License-Identifier: MIT
#include "kernels/attention/check.h"
#include "kernels/attention/content/shared_qk_items.h"

namespace weft {
namespace {

void expect_like(const HeadsView& x, const HeadsView& other) {
  check_heads("gradients, keys and values", x, other.batch, other.time, other.heads, other.size, other.dtype);
  WEFT_CHECK(x.size % 8 == 0, "attention: heads of ", x.size, " features; multiples of 8 work");
}
void expect_own(const HeadsView& x, const TensorView& lse, const HeadRange& heads) {
  expect_size(lse, wide(x.dtype), x.batch * x.heads * x.time, "own values: lse");
  WEFT_CHECK(heads.head(heads.count - 1) < x.heads, "own values: ", heads.count, " of ", x.heads, " heads");
}

}  // namespace

void check(const SharedKeysForward& k) { expect_like(k.k, k.q); }
void check(const SharedKeysBackward& k) { expect_like(k.dq, k.q), expect_like(k.dk, k.q); }
void check(const OwnValuesForward& k) { expect_like(k.y, k.v), expect_own(k.y, k.lse, k.heads); }
void check(const OwnValuesBackward& k) { expect_like(k.dv, k.dy), expect_own(k.dv, k.lse, k.heads); }

void compute(CpuQueue& queue, const SharedKeysForward& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const SharedKeysBackward& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const OwnValuesForward& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const OwnValuesBackward& k) { content::in_items(queue, k); }

}  // namespace weft
