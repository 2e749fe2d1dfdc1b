// SPDX-License-Identifier: MIT
// attention::select() as a build with machine code for every GPU answers, in any build.
#pragma once

#include "kernels/attention/attention.h"

#include <string>
#include <vector>

namespace weft {
struct PassKernels {
  std::string forward, backward;  // name_of(attention::Kernel)

  friend bool operator==(const PassKernels&, const PassKernels&) = default;
};

// The kernels of each pass. The backward pass has the scratch memory that makes it faster, as in
// training. `of_parts`: numbers of the kernels that parts bring (attention::added_kernel).
std::vector<PassKernels> choose_kernels(const AttentionForward&, AttentionBackward,
                                        int compute_capability, const std::vector<int>& of_parts);
}  // namespace weft
