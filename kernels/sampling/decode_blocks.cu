// SPDX-License-Identifier: MIT
// DecodeBlocks on CUDA: a decoder of a part where one covers the case, else five launches a block.
#include "kernels/sampling/decode_blocks.h"
#include "kernels/sampling/decode_blocks_steps.h"

namespace weft {
void compute(CudaQueue& queue, const DecodeBlocks& k) {
  if (k.y.size() == 0) return;
  for (const BlocksDecoder& decoder : blocks_decoders())
    if (decoder.covers(k)) return decoder.compute(queue, k);
  run_in_steps(queue, k);
}

void compute(CudaQueue& queue, const PrepareBlocks& k) {
  for (const BlocksDecoder& decoder : blocks_decoders())
    if (decoder.prepare && decoder.prepared_bytes(k.blocks) == k.blocks.prepared.size())
      return decoder.prepare(queue, k.blocks);
  fail("prepare_blocks: no form of decode_blocks wants ", k.blocks.prepared.size(), " bytes");
}
}  // namespace weft
