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

void prepare(CudaQueue& queue, const DecodeBlocks& k) {
  for (const BlocksDecoder& decoder : blocks_decoders()) {
    if (!decoder.prepare || decoder.prepared_bytes(k) != k.prepared.size()) continue;
    decoder.prepare(queue, k);
    return finish(queue, "prepare_blocks");
  }
  fail("decode_blocks: no form wants ", k.prepared.size(), " bytes of prepared weights");
}
}  // namespace weft
