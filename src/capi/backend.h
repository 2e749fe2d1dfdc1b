// SPDX-License-Identifier: MIT
// Where the tables of a plan lie and its kernels run: the CPU, or one CUDA device.
#pragma once

#include <memory>

#include "kernels/attention/select.h"
#include "src/capi/errors.h"
#include "src/patterns/packed_maps.h"

namespace weft::capi {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual bool is_cuda() const = 0;
  virtual AttentionMaps place(const PackedMaps&) = 0;  // where kernels read them, for as long as this lives
  // Throws where `pointer` certainly is not in this backend's memory.
  virtual void check_memory(const char* name, const void* pointer) const = 0;
  // The kernel of this pass; throws where the form does not cover the case.
  virtual const char* kernel_name(const attention::Problem&, const AttentionPass&) const = 0;
  virtual void run(const AttentionForward&, void* stream) const = 0;
  virtual void run(const AttentionBackward&, void* stream) const = 0;
};

std::unique_ptr<Backend> make_cpu_backend();
std::unique_ptr<Backend> make_cuda_backend(int device);  // throws in a build without CUDA

}  // namespace weft::capi
