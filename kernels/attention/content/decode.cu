// SPDX-License-Identifier: MIT
// A CUDA thread for each item of decode_items.h.
#include "kernels/attention/content/decode_items.h"

namespace weft {

void compute(CudaQueue& queue, const LabelList& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const BlockList& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const LabelFill& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const BlockFill& k) { content::in_items(queue, k); }

}  // namespace weft
