// SPDX-License-Identifier: MIT
// A captured CUDA graph, without CUDA's headers.
#pragma once

#include "kernels/diagnostics/last_launch.h"
#include "kernels/queue.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

struct CUgraph_st;      // cudaGraph_t
struct CUgraphExec_st;  // cudaGraphExec_t
struct CUgraphNode_st;  // cudaGraphNode_t

namespace weft {
class StagingRing;

class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph& operator=(CudaGraph&&) = delete;  // nor copied
  ~CudaGraph();

  // Records what `work` launches on the queue's stream; nothing of it runs yet.
  void capture(const CudaQueue&, const std::function<void()>& work);
  void launch(const CudaQueue&);

  // The graph that this thread is recording; null when there is none.
  static CudaGraph* in_capture();
  // Records a copy of `bytes` > 0 bytes to the device: each launch copies what is at `src` at that
  // time.
  void add_upload(StagingRing&, void* dst, const void* src, std::size_t bytes);

 private:
  void prepare_count(const CudaQueue&);
  void note_count();
  void add_launch(const char* kernel);

  struct Upload {
    StagingRing* ring;
    CUgraphNode_st* node;
    void* dst;
    const void* src;
    std::size_t bytes;
  };

  const CudaQueue* queue_ = nullptr;  // while recording
  CUgraph_st* recorded_ = nullptr;    // what uploads are named by
  CUgraphExec_st* graph_ = nullptr;
  std::vector<Upload> uploads_;
  GraphLaunches launches_;
  uint32_t* count_ = nullptr;  // in pinned memory: what launches_ shows of it
};
}  // namespace weft
