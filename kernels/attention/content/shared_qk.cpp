// SPDX-License-Identifier: MIT
#include "kernels/attention/check.h"
#include "kernels/attention/content/shared_qk_items.h"
#include "kernels/checks.h"

namespace weft {
namespace {

void expect_like(const HeadsView& x, const HeadsView& other, const char* name) {
  check_heads(name, x, other.batch, other.time, other.heads, other.size, other.dtype);
  WEFT_CHECK(x.size % 8 == 0 && x.size <= 256, "attention: heads of ", x.size,
             " features; multiples of 8 up to 256 work");
}

void expect_own(const HeadsView& x, const HeadsView& other, const TensorView& lse, const HeadRange& heads) {
  expect_like(x, other, "y or dv");
  WEFT_CHECK(lse.rank == 3 && lse.dtype == wide(x.dtype) && lse.size() == x.batch * x.heads * x.time &&
                 heads.count > 0 && heads.head(heads.count - 1) < x.heads,
             "own_values: lse ", shape_text(lse), " of ", name_of(lse.dtype), " and ", heads.count, " of ",
             x.heads, " heads");
}

}  // namespace

void check(const SharedKeysForward& k) { expect_like(k.k, k.q, "k"); }
void check(const SharedKeysBackward& k) {
  expect_like(k.dq, k.q, "dq");
  expect_like(k.dk, k.q, "dk");
}
void check(const OwnValuesForward& k) { expect_own(k.y, k.v, k.lse, k.heads); }
void check(const OwnValuesBackward& k) { expect_own(k.dv, k.dy, k.lse, k.heads); }

void compute(CpuQueue& queue, const SharedKeysForward& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const SharedKeysBackward& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const OwnValuesForward& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const OwnValuesBackward& k) { content::in_items(queue, k); }

}  // namespace weft
