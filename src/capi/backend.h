// SPDX-License-Identifier: MIT
// Where the tables of a plan lie and its kernels run: the CPU, or one CUDA device.
#pragma once

#include <memory>

#include "src/capi/errors.h"
#include "src/patterns/packed_maps.h"

namespace weft::capi {

// What the choice of kernels depends on besides the passes of the plan.
struct FormQuery {
  DType dtype = DType::f32;
  AttentionForm form = AttentionForm::automatic;
  std::int64_t d_qk = 0, d_v = 0;
  bool segments = false;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual bool is_cuda() const = 0;
  // Puts the tables where kernels read them, for as long as this lives.
  virtual AttentionMaps place(const PackedMaps&) = 0;
  // Throws where `pointer` certainly is not in this backend's memory.
  virtual void check_memory(const char* name, const void* pointer) const = 0;
  // The kernels of this pass forward, over `n` queries; throws where the form does not cover the case.
  virtual const char* form_name(const FormQuery&, const AttentionPass&, std::int64_t n) const = 0;
  virtual void run(const AttentionForward&, void* stream) const = 0;
  virtual void run(const AttentionBackward&, void* stream) const = 0;
};

std::unique_ptr<Backend> make_cpu_backend();
// In a build without CUDA it throws.
std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace weft::capi
