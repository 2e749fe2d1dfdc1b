// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters of thread blocks on Hopper, in f16 and bf16, for runs of up to four
// texts: a BlocksDecoder.
#pragma once

#include "kernels/sampling/decode_blocks.h"

namespace weft::decode_cluster {
int64_t prepared_bytes(const DecodeBlocks&);
void prepare(CudaQueue&, const DecodeBlocks&);
bool covers(const DecodeBlocks&);
void compute(CudaQueue&, const DecodeBlocks&);
}  // namespace weft::decode_cluster
