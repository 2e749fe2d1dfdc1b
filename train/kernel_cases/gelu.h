// SPDX-License-Identifier: MIT
// Cases of a projection with a GELU, for the table in table.cpp.
#pragma once

#include "train/kernel_cases/kernel_cases.h"

namespace weft {

void add_linear_gelu_cases(std::vector<KernelCase>&);

}  // namespace weft
