// SPDX-License-Identifier: MIT
// Cases of the kernels that only sampling uses, for the table in kernel_case_table.cpp.
#pragma once

#include "train/kernel_cases.h"

namespace weft {

void add_sampling_cases(std::vector<KernelCase>&);

}  // namespace weft
