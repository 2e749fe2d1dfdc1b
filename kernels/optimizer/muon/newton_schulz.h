// SPDX-License-Identifier: MIT
// The forms of NewtonSchulz on CUDA: GEMMs of cuBLASLt (muon.cu), or kernels for Hopper.
#pragma once

#include "kernels/optimizer/muon/muon.h"

namespace weft::newton_schulz {
// Whether there is a kernel for Hopper: bf16, rows and columns that TMA takes.
bool covers(const NewtonSchulz&);

// A step of the iteration, from x to out by way of the squares. last: times the scale, too.
void run_hopper(CudaQueue&, const NewtonSchulz&, const TensorView& out, const TensorView& x,
                bool last);
}  // namespace weft::newton_schulz
