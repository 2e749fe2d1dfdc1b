// SPDX-License-Identifier: MIT
// A CUDA thread for each row (shared_qk_items.h).
#include "kernels/attention/content/shared_qk_items.h"

namespace weft {

void compute(CudaQueue& queue, const SharedKeysForward& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const SharedKeysBackward& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const OwnValuesForward& k) { content::in_items(queue, k); }
void compute(CudaQueue& queue, const OwnValuesBackward& k) { content::in_items(queue, k); }

}  // namespace weft
