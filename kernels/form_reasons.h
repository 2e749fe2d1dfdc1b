// SPDX-License-Identifier: MIT
// What keeps CUDA kernels from a case whatever they compute: reasons that the choices of forms share. ""
// where nothing does.
#pragma once

#include <string>

#include "kernels/dtype.h"

namespace weft {

// Of kernels whose operands are rounded to 16 bits.
std::string reason_against_16_bits(DType);
// Of those for wgmma and the copy engine of sm_90a, which round to 16 bits too. `compute_capability` 90 is
// 9.0.
std::string reason_against_sm90a(DType, int compute_capability);

}  // namespace weft
