// SPDX-License-Identifier: MIT
// The part decode: one persistent kernel takes a position through all blocks.
#include "kernels/sampling/decode/persistent.h"

namespace weft {
void register_decode() {
#ifdef WEFT_CUDA
  add_blocks_decoder({decode_persistent::covers, decode_persistent::compute});
#endif
}
}  // namespace weft
