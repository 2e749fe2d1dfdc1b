// SPDX-License-Identifier: MIT
#include "src/cuda/memory_operations.h"

#include "src/cuda/staging.h"

namespace weft {
namespace {
// A function of the driver, to which programs do not link.
auto* batch_of_memory_operations() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    WEFT_CUDA_CALL(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &function, 12000,
                                                    cudaEnableDefault, &result));
    WEFT_CHECK(result == cudaDriverEntryPointSuccess,
               "the NVIDIA driver has no cuStreamBatchMemOp");
    return reinterpret_cast<decltype(&cuStreamBatchMemOp)>(function);
  }();
  return found;
}
}  // namespace

MemoryOperation write_word(CUdeviceptr address, uint32_t value) {
  MemoryOperation operation = {};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = address;
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return operation;
}

MemoryOperation wait_for_word(CUdeviceptr address, uint32_t value) {
  MemoryOperation operation = {};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = address;
  operation.waitValue.value = value;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return operation;
}

CUresult enqueue(std::span<MemoryOperation> operations, cudaStream_t stream) {
  return batch_of_memory_operations()(stream, static_cast<unsigned>(operations.size()),
                                      operations.data(), 0);
}
}  // namespace weft
