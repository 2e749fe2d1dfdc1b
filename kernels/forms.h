// SPDX-License-Identifier: MIT
// Forms of kernels that parts add, and the reasons for which a CUDA form cannot run, as texts for
// errors; "" where there is none.
#pragma once

#include "kernels/view.h"

#include <string>

namespace weft {
// Calls register_<part>() of every part that adds forms and is built, once. A table of forms calls
// it before it is read. CMake writes it from src/parts/parts.cmake.
void register_kernel_parts();

#ifdef WEFT_SM90A  // the build has machine code for sm_90a
inline constexpr bool kBuiltForSm90a = true;
#else
inline constexpr bool kBuiltForSm90a = false;
#endif

// For kernels that round operands to 16 bits.
inline std::string reason_against_16_bits(DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return "";
  return str("it rounds to 16 bits, and ", name_of(dtype), " must not be rounded");
}

// For kernels with wgmma and TMA, which round to 16 bits too. `compute_capability` 90 is 9.0;
// `built`: there is machine code for them.
inline std::string reason_against_sm90a(DType dtype, int compute_capability,
                                        bool built = kBuiltForSm90a) {
  if (!built) return "it is not part of this build, whose CUDA targets lack 90a";
  if (compute_capability != 90)
    return str("it needs a GPU of compute capability 9.0, got ", compute_capability / 10, ".",
               compute_capability % 10);
  return reason_against_16_bits(dtype);
}
}  // namespace weft
