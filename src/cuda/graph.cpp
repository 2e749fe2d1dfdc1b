// SPDX-License-Identifier: MIT
// Stream capture: thread-local, so that other threads (data, sampling) may use CUDA meanwhile.
#include "src/cuda/graph.h"

#include "src/cuda/check.h"

namespace weft {

CudaGraph::~CudaGraph() {
  if (graph_) static_cast<void>(cudaGraphExecDestroy(graph_));
}

void CudaGraph::capture(const CudaQueue& queue, const std::function<void()>& work) {
  cudaGraph_t recorded = nullptr;
  WEFT_CUDA_CALL(cudaStreamBeginCapture(queue.stream, cudaStreamCaptureModeThreadLocal));
  std::string trouble;
  try {
    work();
  } catch (const Error& error) { trouble = error.what(); }
  const cudaError_t ended =
      cudaStreamEndCapture(queue.stream, &recorded);  // also after a failure: the stream must go on
  if (trouble.empty() && ended != cudaSuccess) trouble = cudaGetErrorString(ended);
  if (trouble.empty()) {
    const cudaError_t made = cudaGraphInstantiate(&graph_, recorded, 0);
    if (made != cudaSuccess) trouble = cudaGetErrorString(made);
  }
  if (recorded) static_cast<void>(cudaGraphDestroy(recorded));
  if (!trouble.empty()) {
    static_cast<void>(cudaGetLastError());
    fail(str("the step could not be captured as a CUDA graph: ", trouble,
             "; train.graph: false runs without one"));
  }
}

void CudaGraph::launch(const CudaQueue& queue) { WEFT_CUDA_CALL(cudaGraphLaunch(graph_, queue.stream)); }

}  // namespace weft
