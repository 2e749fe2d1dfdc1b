// SPDX-License-Identifier: MIT
// A backend is a queue type. A kernel is a parameter struct with one compute() for each queue type:
// foo.h declares both, foo.cpp defines the result, foo.cu computes it on the GPU. launch() alone
// starts kernels.
#pragma once

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/view.h"

#include <cstddef>
#include <variant>
#include <vector>

// cudaStream_t and cublasLtHandle_t, without pulling CUDA headers into host code
struct CUstream_st;
struct cublasLtContext;

namespace weft {
struct CpuQueue {
  LaunchProfile* profile = nullptr;  // notes each launch, where there is one
};

struct CudaQueue {
  CUstream_st* stream = nullptr;
  cublasLtContext* cublaslt = nullptr;
  // Scratch, at least kWorkspaceBytes. Kernels of a stream run in order: each may use all of it.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  LaunchProfile* profile = nullptr;
};

inline constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

#ifdef WEFT_CUDA
using Queue = std::variant<CpuQueue, CudaQueue>;
#else
using Queue = std::variant<CpuQueue>;  // compute(CudaQueue&, ...) is never referenced: it links
#endif

// Declares what a kernel struct needs: check(), which throws Error where shapes or types are wrong,
// and the two forms, which compute what was checked.
#define WEFT_KERNEL(Kernel)               \
  void check(const Kernel&);              \
  void compute(CpuQueue&, const Kernel&); \
  void compute(CudaQueue&, const Kernel&)

template <class AnyQueue, class Kernel>
  requires requires { Kernel::kName; }
void run(AnyQueue& queue, const Kernel& kernel) {
  check(kernel);
  compute(queue, kernel);
}

// WEFT_DEBUG: 0 nothing; 1 prints each launch; 2 also waits for it, checks it and prints its time;
// 3 also searches its outputs() for NaN and infinity. Levels 2 and 3 do nothing while a CUDA graph
// is captured.
int debug_level();

// Called around every launch. finish() checks CUDA's last error at every level.
void begin(CpuQueue&);
void begin(CudaQueue&);
void finish(CpuQueue&, const char* kernel);
void finish(CudaQueue&, const char* kernel);
// Throws when an output (unless absent) holds a value that is not finite.
void check_finite(CpuQueue&, const char* kernel, const std::vector<TensorView>& outputs);
void check_finite(CudaQueue&, const char* kernel, const std::vector<TensorView>& outputs);

template <class Kernel>
void launch(Queue& queue, const Kernel& kernel) {
  std::visit(
      [&](auto& q) {
        begin(q);
        if (q.profile) q.profile->begin();
        run(q, kernel);
        if (q.profile) q.profile->end(Kernel::kName, cost_of(kernel));
        finish(q, Kernel::kName);
        if constexpr (requires { kernel.outputs(); }) {
          if (debug_level() >= 3) check_finite(q, Kernel::kName, kernel.outputs());
        }
      },
      queue);
}
}  // namespace weft
