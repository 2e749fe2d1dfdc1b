// SPDX-License-Identifier: MIT
// A CUDA thread for each item of blocks_items.h.
#include "kernels/attention/content/blocks_items.h"

namespace weft {

void compute(CudaQueue& queue, const BlockChoice& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const BlockMaps& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const PlaceMaps& k) { content::in_items(queue, k); }

}  // namespace weft
