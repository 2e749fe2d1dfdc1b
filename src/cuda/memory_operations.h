// SPDX-License-Identifier: MIT
// Words that the GPU itself writes and waits for, between the kernels of a stream.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
#include <span>

namespace weft {
using MemoryOperation = CUstreamBatchMemOpParams;

// After all that the stream has done, whose memory others then see as well.
MemoryOperation write_word(CUdeviceptr address, uint32_t value);
// What follows on the stream comes after the word has this value.
MemoryOperation wait_for_word(CUdeviceptr address, uint32_t value);

CUresult enqueue(std::span<MemoryOperation>, cudaStream_t);
}  // namespace weft
