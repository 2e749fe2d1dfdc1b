// SPDX-License-Identifier: MIT
// Pinned memory between the host's and the device's, for copies that nobody waits for.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <vector>

namespace weft {

// Buffers taken in turn. One is used again when what was enqueued up to the mark() after it is done.
class StagingRing {
 public:
  StagingRing() = default;
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;
  ~StagingRing();

  // A pinned copy of bytes > 0 bytes at `src`; waits where all buffers are in use. It stays until the stream
  // that the next mark() names has come there.
  const void* stage(const void* src, std::size_t bytes);
  void mark(cudaStream_t);
  // A buffer of that many bytes or more, whatever it holds, which stays as long as this object: null when
  // there has been none.
  const void* any(std::size_t bytes) const;
  // Waits for one mark after the other, so that the work between them is seen to go on.
  void follow();

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
