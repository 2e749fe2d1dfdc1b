// SPDX-License-Identifier: MIT
#include "src/cuda/staging.h"

#include <algorithm>

#include "src/cuda/check.h"

namespace weft {

StagingRing::~StagingRing() {
  for (Buffer& b : buffers_) {
    static_cast<void>(cudaFreeHost(b.data));
    if (b.done) static_cast<void>(cudaEventDestroy(b.done));
  }
  for (void* data : outgrown_) static_cast<void>(cudaFreeHost(data));
}

const void* StagingRing::stage(const void* src, std::size_t bytes) {
  Buffer& b = buffers_[next_];
  WEFT_CHECK(b.marked, "more copies staged for one launch than there are buffers: ", buffers_.size());
  next_ = (next_ + 1) % buffers_.size();
  if (!b.done) WEFT_CUDA_CALL(cudaEventCreateWithFlags(&b.done, cudaEventDisableTiming));
  WEFT_CUDA_CALL(cudaEventSynchronize(b.done));  // returns at once for an event never recorded
  if (b.bytes < bytes) {
    const std::size_t size = std::max<std::size_t>(bytes, 4096);
    void* data = nullptr;
    WEFT_CUDA_CALL(cudaMallocHost(&data, size));
    if (b.data) outgrown_.push_back(b.data);
    b.data = data;
    b.bytes = size;
  }
  std::memcpy(b.data, src, bytes);
  b.marked = false;
  return b.data;
}

void StagingRing::mark(cudaStream_t stream) {
  for (Buffer& b : buffers_) {
    if (b.marked) continue;
    WEFT_CUDA_CALL(cudaEventRecord(b.done, stream));
    b.marked = true;
  }
}

const void* StagingRing::any(std::size_t bytes) const {
  for (const Buffer& b : buffers_)
    if (b.bytes >= bytes) return b.data;
  return nullptr;
}

void StagingRing::follow() {
  for (const Buffer& b : buffers_)
    if (b.done) WEFT_CUDA_CALL(cudaEventSynchronize(b.done));
}

}  // namespace weft
