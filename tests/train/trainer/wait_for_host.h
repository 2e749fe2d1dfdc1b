// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/queue.h"

#include <cstdint>

namespace weft {
// A kernel of this name that ends when `word`, in memory of the host that the GPU sees, is not 0;
// after 20 s in any case.
void wait_for_host(CudaQueue&, const volatile int32_t& word);
}  // namespace weft
