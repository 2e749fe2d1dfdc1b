// SPDX-License-Identifier: MIT
// Cases of the kernels that only sampling uses, for the table in table.cpp.
#pragma once

#include "train/kernel_cases/kernel_cases.h"

namespace weft {

void add_sampling_cases(std::vector<KernelCase>&);

}  // namespace weft
