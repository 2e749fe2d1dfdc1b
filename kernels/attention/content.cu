// SPDX-License-Identifier: MIT
// A CUDA thread for each item of content_items.h and content_lists.h.
#include "kernels/attention/content_lists.h"

namespace weft {
void compute(CudaQueue& queue, const Labels& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const CentroidGradient& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const SharedKeys& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const OwnValues& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const BlockMaps& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const LabelList& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const BlockList& k) { content::in_items(queue, k); }
}  // namespace weft
