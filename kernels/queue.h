// SPDX-License-Identifier: MIT
// A backend is a queue type. A kernel is a parameter struct with one run() for each queue type:
// kernels/foo.h declares `struct Foo` and both run()s, foo.cpp defines it, foo.cu runs it on the GPU.
// launch() is the only place where a kernel is started.
#pragma once

#include <cstddef>
#include <variant>

#include "kernels/view.h"

struct CUstream_st;      // cudaStream_t and cublasLtHandle_t, without pulling CUDA headers into host code
struct cublasLtContext;

namespace weft {

struct CpuQueue {};

struct CudaQueue {
  CUstream_st* stream = nullptr;
  cublasLtContext* cublaslt = nullptr;
  void* workspace = nullptr;  // scratch for cuBLASLt and for two-stage reductions; work on one stream is ordered,
  std::size_t workspace_bytes = 0;  // so that every kernel may use all of it. At least kWorkspaceBytes.
};
inline constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

#ifdef WEFT_CUDA
using Queue = std::variant<CpuQueue, CudaQueue>;
#else
using Queue = std::variant<CpuQueue>;  // run(CudaQueue&, ...) is declared and never referenced: it links
#endif

// WEFT_DEBUG: 0 nothing, 1 prints each launch with its time, 2 also waits for and checks each launch,
// 3 also looks for NaN and infinity in every output and names the kernel. Read once.
int debug_level();

// Called after every launch, with the kernel's name. The CUDA one checks the last error, and more by debug_level().
inline void finish(CpuQueue&, const char*) {}
void finish(CudaQueue&, const char* kernel);

template <class Kernel>
void launch(Queue& queue, const Kernel& kernel) {
  std::visit(
      [&](auto& q) {
        run(q, kernel);
        finish(q, Kernel::kName);
      },
      queue);
}

}  // namespace weft
