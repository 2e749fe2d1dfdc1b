// SPDX-License-Identifier: MIT
// A CUDA thread for each item of labels_items.h.
#include "kernels/attention/content/labels_items.h"

namespace weft {

void compute(CudaQueue& queue, const LabelDirections& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const Labels& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const LabelOrder& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const ClusterSums& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const CentroidGradient& k) { content::in_items(queue, k); }

}  // namespace weft
