// SPDX-License-Identifier: MIT
// The build, the GPU, the element type.
#include "kernels/form_reasons.h"

#include "kernels/view.h"

namespace weft {

#ifdef WEFT_SM90A  // the build has machine code for sm_90a
static constexpr bool kBuilt = true;
#else
static constexpr bool kBuilt = false;
#endif

std::string reason_against_16_bits(DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return "";
  return str("it rounds to 16 bits, and ", name_of(dtype), " must not be rounded");
}

std::string reason_against_sm90a(DType dtype, int compute_capability) {
  if (!kBuilt) return "it is not part of this build, whose CUDA targets lack 90a";
  if (compute_capability != 90)
    return str("it needs a GPU of compute capability 9.0, got ", compute_capability / 10, ".",
               compute_capability % 10);
  return reason_against_16_bits(dtype);
}

}  // namespace weft
