// SPDX-License-Identifier: MIT
// The Hopper kernels of this folder: LinearGelu (gelu_hopper.cuh), dw and db of LinearBackward
// (weight_gradient.cuh).
#pragma once

#include "kernels/linear/gelu.h"

namespace weft {
namespace linear_gelu {

// For the cases that choose_form() gives this form.
void run_hopper(CudaQueue&, const LinearGeluForward&);
void run_hopper(CudaQueue&, const LinearGeluBackward&);

}  // namespace linear_gelu
namespace linear_rows {

// Whether it takes this case, of which dw and db are wanted.
bool covers(const CudaQueue&, const LinearBackward&);
void run_hopper(CudaQueue&, const LinearBackward&);

}  // namespace linear_rows
}  // namespace weft
