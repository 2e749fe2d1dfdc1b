// SPDX-License-Identifier: MIT
// Cases of layer normalisation and the residual connection, for the table in table.cpp.
#pragma once

#include "train/kernel_cases/kernel_cases.h"

namespace weft {

void add_norm_cases(std::vector<KernelCase>&);

}  // namespace weft
