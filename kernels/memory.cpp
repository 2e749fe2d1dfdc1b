// SPDX-License-Identifier: MIT
// Memory of the host. Queues by name.
#include "kernels/memory.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace weft {
namespace {
constexpr std::size_t kAlignment = 256;
}

void* allocate(CpuQueue&, std::size_t bytes) {
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

void release(CpuQueue&, void* memory) { std::free(memory); }

void upload(CpuQueue&, void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void download(CpuQueue&, void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

void zero(CpuQueue&, void* device, std::size_t bytes) {
  if (bytes > 0) std::memset(device, 0, bytes);
}

Queue open_queue(const std::string& device) {
  if (device == "cpu") return CpuQueue{};
  if (device != "cuda") fail("device '", device, "': expected cpu or cuda");
#ifdef WEFT_CUDA
  try {
    CudaQueue of_first_gpu;
    void* workspace = allocate(of_first_gpu, kWorkspaceBytes);
    if (!workspace) fail("its memory is full");
    return make_cuda_queue(workspace);
  } catch (const Error& error) {
    fail("device 'cuda': ", error.what(), "; use --device cpu");
  }
#else
  fail("device 'cuda': this program was built without CUDA; use --device cpu");
#endif
}
}  // namespace weft
