// SPDX-License-Identifier: MIT
// The part convert: weights as safetensors files.
#include "src/convert/safetensors.h"

namespace weft {
void register_convert() { add_weights_format(".safetensors", safetensors_weights); }
}  // namespace weft
