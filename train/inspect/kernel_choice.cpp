// SPDX-License-Identifier: MIT
// The choice asks one constant of the build: whether it has machine code for sm_90a
// (kernels/forms.h). This file compiles the choice once more, in a namespace of its own, with that
// constant set: a copy of its conditions could differ from them.
#include "train/inspect/kernel_choice.h"

#include "kernels/view.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#ifndef WEFT_SM90A
#define WEFT_SM90A
#endif
// Elsewhere these names stand for what this build has.
#define kBuiltForSm90a kChosenForSm90a
#define reason_against_sm90a reason_in_any_build
#include "kernels/forms.h"
#define attention attention_in_any_build
#define name_of name_in_any_build
#include "kernels/attention/select.cpp"  // NOLINT(bugprone-suspicious-include)
#undef attention
#undef name_of

namespace weft {
std::vector<PassKernels> choose_kernels(const AttentionForward& forward, AttentionBackward backward,
                                        int compute_capability, const std::vector<int>& of_parts) {
  using namespace attention_in_any_build;
  for (const int kernel : of_parts) add_kernel(static_cast<Kernel>(kernel), {});
  // Whether the address is null is all that the choice asks of scratch memory.
  if (wanted_scratch(backward, compute_capability, Scratch::kWhereFaster) > 0)
    backward.scratch.data = &backward;
  std::vector<PassKernels> kernels;
  for (int p = 0; p < forward.maps.passes; ++p) {
    const auto name = [&](const auto& x) {
      return name_in_any_build(select(Problem::of(x), x.maps.pass[p], compute_capability));
    };
    kernels.push_back({name(forward), name(backward)});
  }
  return kernels;
}
}  // namespace weft
