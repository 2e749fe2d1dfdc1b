// SPDX-License-Identifier: MIT
// Memory of the host. Queues by name.
#include "kernels/memory.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <variant>
#include <vector>

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

std::shared_ptr<void> take_zeros(Queue& queue, std::size_t bytes) {
  void* memory = std::visit([&](auto& q) { return allocate(q, bytes); }, queue);
  if (!memory) fail("out of memory: ", bytes, " bytes more were asked for");
  zero(queue, memory, bytes);
  return {memory, [&queue](void* p) { std::visit([&](auto& q) { release(q, p); }, queue); }};
}

std::vector<double> to_host(Queue& queue, const TensorView& view) {
  std::vector<char> bytes(static_cast<std::size_t>(view.bytes()));
  download(queue, bytes.data(), view.data, bytes.size());
  std::vector<double> values(static_cast<std::size_t>(view.size()));
  dispatch_any(view.dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = static_cast<double>(value);
    }
  });
  return values;
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
