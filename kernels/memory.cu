// SPDX-License-Identifier: MIT
// Memory of the current GPU.
#include "kernels/device/dependent_launch.cuh"
#include "kernels/memory.h"

#include <cstdint>
#include <cublasLt.h>

namespace weft {
namespace {
constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    copy_words(uint32_t* to, const uint32_t* from, int64_t count) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] = from[i];
}
}  // namespace

void* allocate(CudaQueue&, std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // the caller says what is out of memory
    return nullptr;
  }
  WEFT_CUDA_CHECK(result);
  return memory;
}

void release(CudaQueue&, void* memory) { static_cast<void>(cudaFree(memory)); }

void upload(CudaQueue& queue, void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  WEFT_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, queue.stream));
  WEFT_CUDA_CHECK(cudaStreamSynchronize(queue.stream));
}

void upload_pinned(CudaQueue& queue, void* device, const void* pinned, std::size_t bytes) {
  constexpr std::size_t kMostBytes = 128 << 10;
  const auto address = reinterpret_cast<std::uintptr_t>(device);
  if (bytes > kMostBytes || bytes % 4 != 0 || address % 4 != 0) {
    WEFT_CUDA_CHECK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, queue.stream));
    return;
  }
  const auto words = static_cast<int64_t>(bytes / 4);
  launch_dependent(queue, copy_words, blocks_for(words, kThreads), kThreads,
                   static_cast<uint32_t*>(device), static_cast<const uint32_t*>(pinned), words);
}

void download(CudaQueue& queue, void* host, const void* device, std::size_t bytes) {
  if (bytes > 0)
    WEFT_CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, queue.stream));
  WEFT_CUDA_CHECK(cudaStreamSynchronize(queue.stream));
}

void zero(CudaQueue& queue, void* device, std::size_t bytes) {
  if (bytes > 0) WEFT_CUDA_CHECK(cudaMemsetAsync(device, 0, bytes, queue.stream));
}

CudaQueue make_cuda_queue(void* workspace) {
  CudaQueue queue;
  WEFT_CUDA_CHECK(cudaStreamCreateWithFlags(&queue.stream, cudaStreamNonBlocking));
  const cublasStatus_t status = cublasLtCreate(&queue.cublaslt);
  WEFT_CHECK(status == CUBLAS_STATUS_SUCCESS,
             "cuBLASLt could not be started: ", cublasLtGetStatusString(status));
  queue.workspace = workspace;
  queue.workspace_bytes = kWorkspaceBytes;
  return queue;
}
}  // namespace weft
