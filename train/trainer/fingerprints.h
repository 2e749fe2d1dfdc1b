// SPDX-License-Identifier: MIT
#pragma once

#include "src/device.h"

#include <vector>

namespace weft {
// The Fingerprint (kernels/optimizer/reduce.h) of each tensor; waits for the device.
std::vector<uint64_t> fingerprints(Device&, const std::vector<TensorView>&);
}  // namespace weft
