// SPDX-License-Identifier: MIT
// Cases of what an update does with losses, gradients and weights, for the table in table.cpp.
#pragma once

#include "train/kernel_cases/kernel_cases.h"

namespace weft {

void add_step_cases(std::vector<KernelCase>&);

}  // namespace weft
