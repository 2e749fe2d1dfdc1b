// SPDX-License-Identifier: MIT
// Checked calls of the CUDA runtime, and pinned host memory for asynchronous copies to the device.
#pragma once

#include "kernels/view.h"

#include <array>
#include <cstddef>
#include <cuda_runtime.h>
#include <vector>

// A failure is an Error with the statement and CUDA's words.
#define WEFT_CUDA_CALL(call)                                                               \
  do {                                                                                     \
    if (const cudaError_t result_ = (call); result_ != cudaSuccess)                        \
      ::weft::fail("CUDA: ", cudaGetErrorString(result_), " (", cudaGetErrorName(result_), \
                   ") in ", #call);                                                        \
  } while (0)

namespace weft {
// A ring of buffers. One is reused when the work enqueued up to the mark() after it is done.
class StagingRing {
 public:
  StagingRing() = default;
  StagingRing& operator=(StagingRing&&) = delete;  // nor copied
  ~StagingRing();

  // A pinned copy of bytes > 0 bytes; waits for a buffer. It stays until the stream passes the next
  // mark().
  const void* stage(const void* src, std::size_t bytes);
  void mark(cudaStream_t);
  // Any buffer of at least that many bytes, which lives as long as this object; null when there is
  // none.
  const void* any(std::size_t bytes) const;
  void follow();  // waits for all marks

 private:
  struct Buffer {
    void* data = nullptr;
    std::size_t bytes = 0;
    cudaEvent_t done = nullptr;
    bool marked = true;
  };

  std::array<Buffer, 16> buffers_;
  std::vector<void*> outgrown_;  // what any() may have named
  std::size_t next_ = 0;
};
}  // namespace weft
