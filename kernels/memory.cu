// SPDX-License-Identifier: MIT
// Memory of the current GPU.
#include "kernels/device/cuda.cuh"
#include "kernels/memory.h"

#include <cublasLt.h>

namespace weft {
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
