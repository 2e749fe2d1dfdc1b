// SPDX-License-Identifier: MIT
// `inspect --arch`: the kernels of attention on a GPU that need not be there, in any build.
#pragma once

#include "kernels/attention/attention.h"
#include "src/patterns/packed_maps.h"

#include <cstdint>
#include <string>
#include <vector>

namespace weft {
// The compute capability of "sm_80", "sm_90a", ...; 90 is 9.0. Throws Error that lists what works.
int capability_of(const std::string& arch);

// What runs attention over the heads of a layer.
struct ArchProblem {
  DType dtype = DType::bf16;
  int64_t batch = 1;                  // sequences at once
  int64_t qk_size = 64, v_size = 64;  // Dqk, Dv
  bool documents = false;             // data.separator: no query sees another document
};

struct PassKernels {
  std::string forward, backward;  // name_of(attention::Kernel)

  friend bool operator==(const PassKernels&, const PassKernels&) = default;
};

// Of each pass, as training launches them: q, k and v in a packed projection. attention::select()
// answers as in a build with machine code for every GPU.
std::vector<PassKernels> kernels_on(int compute_capability, const PackedMaps&, int heads, Lengths,
                                    const ArchProblem&);

// A table of the passes of one pattern.
std::string arch_text(const AttentionPattern&, int heads, Lengths, const ArchProblem&,
                      int compute_capability);
}  // namespace weft
