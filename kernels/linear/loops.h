// SPDX-License-Identifier: MIT
// The definition of the affine map: plain loops on the CPU for any floating type. Tests hold BLAS against it.
#pragma once

#include "kernels/linear/linear.h"

namespace weft {

void linear_forward_loops(const LinearForward&);
void linear_backward_loops(const LinearBackward&);

}  // namespace weft
