// SPDX-License-Identifier: MIT
// The cases of the attention kernels.
#pragma once

#include "train/kernel_cases/kernel_cases.h"

namespace weft {

void add_attention_cases(std::vector<KernelCase>& cases);

}  // namespace weft
