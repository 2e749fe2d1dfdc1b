// SPDX-License-Identifier: MIT
// The Hopper form of LinearGelu (gelu_hopper.cuh), for the cases that choose_form() gives it.
#pragma once

#include "kernels/linear/gelu.h"

namespace weft::linear_gelu {

void run_hopper(CudaQueue&, const LinearGeluForward&);
void run_hopper(CudaQueue&, const LinearGeluBackward&);

}  // namespace weft::linear_gelu
