// SPDX-License-Identifier: MIT
// DecodeBlocks as one persistent kernel on Hopper, in f16 and bf16: a BlocksDecoder.
#pragma once

#include "kernels/sampling/decode_blocks.h"

namespace weft::decode_persistent {
bool covers(const DecodeBlocks&);
void compute(CudaQueue&, const DecodeBlocks&);
}  // namespace weft::decode_persistent
