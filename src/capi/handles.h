// SPDX-License-Identifier: MIT
// What the handles of the C interface point to. Neither changes once made: any number of threads may use it.
#pragma once

#include <memory>

#include "src/capi/backend.h"

struct weft_pattern {
  std::unique_ptr<weft::AttentionPattern> pattern;
  int heads = 0;
  std::string name;
};

struct weft_attention_plan {
  int heads = 0;
  weft::Lengths n;
  std::int64_t d_qk = 0, d_v = 0;
  std::unique_ptr<weft::capi::Backend> backend;
  weft::AttentionMaps maps;
  weft::PairCount pairs;
  std::int64_t bytes = 0;
};

namespace weft::capi {

inline constexpr std::int64_t kMaxHeads = 65536, kMaxHeadSize = 65536;

std::unique_ptr<weft_pattern> make_named(const weft_pattern_spec*, std::int32_t heads);
std::unique_ptr<weft_pattern> make_layout(const weft_layout*, std::int32_t heads);
void write_mask(const weft_pattern&, std::int32_t head, std::int64_t n_q, std::int64_t n_k,
                std::uint8_t* mask);

std::unique_ptr<weft_attention_plan> make_plan(const weft_pattern*, Lengths, std::int64_t d_qk,
                                               std::int64_t d_v, std::int32_t device);

// What the choice of kernels depends on besides the passes of the plan, for one sequence.
attention::Problem problem_of(const weft_attention_plan&, DType, AttentionForm, bool segments);
// The kernels of all passes, "hopper/band+general" where they differ. The text lives as long as the library.
const char* kernel_names(const weft_attention_plan&, const attention::Problem&);

// These check every argument.
DType checked_dtype(const weft_attention_plan&, std::int32_t dtype);
AttentionForm checked_form(std::int32_t form);
std::size_t workspace_bytes(const weft_attention_plan&, std::int64_t batch, DType);
AttentionForward checked_forward(const weft_attention_plan&, const weft_forward_args&);
AttentionBackward checked_backward(const weft_attention_plan&, const weft_backward_args&);

}  // namespace weft::capi
