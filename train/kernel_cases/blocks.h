// SPDX-License-Identifier: MIT
// Cases of residual blocks in sampling, for the table in table.cpp.
#pragma once

#include "train/kernel_cases/kernel_cases.h"

namespace weft {

void add_block_cases(std::vector<KernelCase>&);

}  // namespace weft
