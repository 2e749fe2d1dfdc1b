// SPDX-License-Identifier: MIT
// dw and db of LinearBackward on Hopper, by element type.
#include "kernels/linear/forms.h"

#include "kernels/form_reasons.h"
#include "kernels/linear/weight_gradient.cuh"

namespace weft::linear_rows {

bool covers(const CudaQueue& q, const LinearBackward& k) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // indices are of 32 bits
  const std::int64_t rows = k.x.rows(), inner = k.x.cols(), cols = k.dy.cols();
  if (!reason_against_sm90a(k.x.dtype, compute_capability()).empty()) return false;
  return rows > 0 && k.dw.view.size() > 0 && rows < kMost && inner < kMost && cols < kMost &&
         inner % 8 == 0 && cols % 8 == 0 && aligned16(k.x, k.dy, k.dw.view) &&
         bytes_of_share(k) <= q.workspace_bytes;
}

void run_hopper(CudaQueue& q, const LinearBackward& k) {
  if (k.x.dtype == DType::f16) return start<__half>(q, k);
  start<__nv_bfloat16>(q, k);
}

}  // namespace weft::linear_rows
