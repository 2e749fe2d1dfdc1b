// SPDX-License-Identifier: MIT
// Fuzzers read what others wrote and launch nothing: no part adds forms of kernels.
#include "kernels/forms.h"

namespace weft {
void register_kernel_parts() {}
}  // namespace weft
