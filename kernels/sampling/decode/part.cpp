// SPDX-License-Identifier: MIT
// The part decode: one kernel takes a position through all blocks. Up to eight texts go by clusters
// of thread blocks, many by a persistent kernel.
#include "kernels/sampling/decode/cluster.h"
#include "kernels/sampling/decode/persistent.h"

namespace weft {
void register_decode() {
#ifdef WEFT_CUDA
  add_blocks_decoder({decode_cluster::covers, decode_cluster::compute,
                      decode_cluster::prepared_bytes, decode_cluster::prepare});
  add_blocks_decoder({decode_cluster::covers_eight, decode_cluster::compute_eight,
                      decode_cluster::prepared_bytes_of_eight, decode_cluster::prepare_eight});
  add_blocks_decoder({decode_persistent::covers, decode_persistent::compute});
#endif
}
}  // namespace weft
