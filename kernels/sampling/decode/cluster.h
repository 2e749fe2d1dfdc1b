// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters of thread blocks on Hopper, in f16 and bf16: BlocksDecoders for runs of
// up to four texts, and of five to eight.
#pragma once

#include "kernels/sampling/decode_blocks.h"

namespace weft::decode_cluster {
int64_t prepared_bytes(const DecodeBlocks&);
void prepare(CudaQueue&, const DecodeBlocks&);
bool covers(const DecodeBlocks&);
void compute(CudaQueue&, const DecodeBlocks&);

int64_t prepared_bytes_of_eight(const DecodeBlocks&);
void prepare_eight(CudaQueue&, const DecodeBlocks&);
bool covers_eight(const DecodeBlocks&);
void compute_eight(CudaQueue&, const DecodeBlocks&);
}  // namespace weft::decode_cluster
