// SPDX-License-Identifier: MIT
// A captured CUDA graph, without CUDA's headers.
#pragma once

#include <functional>

#include "kernels/queue.h"

struct CUgraphExec_st;  // cudaGraphExec_t

namespace weft {

class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph();

  // Records what `work` launches on the queue's stream; nothing of it runs yet.
  void capture(const CudaQueue&, const std::function<void()>& work);
  void launch(const CudaQueue&);

 private:
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace weft
