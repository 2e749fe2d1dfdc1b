// SPDX-License-Identifier: MIT
// A backend is a queue type. A kernel is a parameter struct with one run() for each queue type:
// kernels/foo.h declares `struct Foo` and both run()s, foo.cpp defines it, foo.cu runs it on the GPU.
// launch() is the only place where a kernel is started.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "kernels/launch_profile.h"
#include "kernels/view.h"

struct CUstream_st;  // cudaStream_t and cublasLtHandle_t, without pulling CUDA headers into host code
struct cublasLtContext;

namespace weft {

struct CpuQueue {
  LaunchProfile* profile = nullptr;  // notes each launch, where there is one
};

struct CudaQueue {
  CUstream_st* stream = nullptr;
  cublasLtContext* cublaslt = nullptr;
  // Scratch for cuBLASLt and for two-stage reductions, at least kWorkspaceBytes. Kernels on one stream run in
  // order, so each of them may use all of it.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  LaunchProfile* profile = nullptr;
};
inline constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

#ifdef WEFT_CUDA
using Queue = std::variant<CpuQueue, CudaQueue>;
#else
using Queue = std::variant<CpuQueue>;  // run(CudaQueue&, ...) is declared and never referenced: it links
#endif

// WEFT_DEBUG: 0 nothing; 1 prints each launch; 2 also waits for it, checks it and prints its time; 3 also
// searches outputs() of the kernel for NaN and infinity and names the kernel. Read once. Levels 2 and 3 do
// nothing while a CUDA graph is captured.
int debug_level();

// Called around every launch. finish() checks CUDA's last error at every level.
void begin(CpuQueue&);
void begin(CudaQueue&);
void finish(CpuQueue&, const char* kernel);
void finish(CudaQueue&, const char* kernel);
// Throws when one of the outputs (absent ones are skipped) holds a value that is not finite.
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

// The kernel of check_finite(): count = number of elements that are NaN or infinite. A tensor of 2^31
// elements or more may have more of them than the count says.
struct CountNonFinite {
  static constexpr const char* kName = "count_non_finite";
  TensorView count;  // (1)  i32
  TensorView x;      // any floating type
};
void check(const CountNonFinite&);  // shapes and types; both forms begin with it
void run(CpuQueue&, const CountNonFinite&);
void run(CudaQueue&, const CountNonFinite&);

}  // namespace weft
