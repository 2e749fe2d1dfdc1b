// SPDX-License-Identifier: MIT
// What the files of libweft_attention share: backends, and what the handles point to. Handles do
// not change once made: any number of threads may use them.
#pragma once

#include "kernels/attention/select.h"
#include "src/capi/errors.h"
#include "src/capi/weft_attention.h"
#include "src/patterns/packed_maps.h"

#include <cstddef>
#include <memory>
#include <string>

namespace weft::capi {
// Where the tables of a plan lie and its kernels run: the CPU, or one CUDA device.
class Backend {
 public:
  Backend() = default;
  Backend& operator=(Backend&&) = delete;  // nor copied
  virtual ~Backend() = default;
  virtual bool is_cuda() const = 0;
  // where kernels read them, for as long as this lives
  virtual AttentionMaps place(const PackedMaps&) = 0;
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

struct weft_pattern {
  std::unique_ptr<weft::AttentionPattern> pattern;
  int heads = 0;
  std::string name;
};

struct weft_attention_plan {
  int heads = 0;
  weft::Lengths n;
  int64_t d_qk = 0, d_v = 0;
  std::unique_ptr<weft::capi::Backend> backend;
  weft::AttentionMaps maps;
  weft::PairCount pairs;
  int64_t bytes = 0;
};

namespace weft::capi {
inline constexpr int64_t kMaxHeads = 65536, kMaxHeadSize = 65536;

std::unique_ptr<weft_pattern> make_named(const weft_pattern_spec*, int32_t heads);
std::unique_ptr<weft_pattern> make_layout(const weft_layout*, int32_t heads);
void write_mask(const weft_pattern&, int32_t head, int64_t n_q, int64_t n_k, uint8_t* mask);

std::unique_ptr<weft_attention_plan> make_plan(const weft_pattern*, Lengths, int64_t d_qk,
                                               int64_t d_v, int32_t device);

// What the choice of kernels depends on besides the passes of the plan, for one sequence.
attention::Problem problem_of(const weft_attention_plan&, DType, AttentionForm, bool segments);
// The kernels of all passes, "hopper/band+general" where they differ. The text lives as long as the
// library.
const char* kernel_names(const weft_attention_plan&, const attention::Problem&);

// These check every argument.
DType checked_dtype(const weft_attention_plan&, int32_t dtype);
AttentionForm checked_form(int32_t form);
std::size_t workspace_bytes(const weft_attention_plan&, int64_t batch, DType);
AttentionForward checked_forward(const weft_attention_plan&, const weft_forward_args&);
AttentionBackward checked_backward(const weft_attention_plan&, const weft_backward_args&);
}  // namespace weft::capi
