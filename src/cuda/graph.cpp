// SPDX-License-Identifier: MIT
// Stream capture: thread-local, so that other threads (data, sampling) may use CUDA meanwhile.
#include "src/cuda/graph.h"

#include "kernels/diagnostics/last_launch.h"
#include "src/cuda/memory_operations.h"
#include "src/cuda/staging.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>

namespace weft {
namespace {
// Launches between two counts: few enough to name a place, at less than 1 % of a step.
constexpr uint32_t kInterval = 32;

thread_local CudaGraph* recording = nullptr;

CUresult write(const volatile uint32_t* word, std::size_t value, cudaStream_t stream) {
  MemoryOperation operation =
      write_word(reinterpret_cast<CUdeviceptr>(word), static_cast<uint32_t>(value));
  return enqueue({&operation, 1}, stream);
}

// The copy that was recorded last on a stream: what comes next there depends on it alone.
cudaGraphNode_t last_copy(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  WEFT_CUDA_CALL(
      cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
#else
  WEFT_CUDA_CALL(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, &nodes, &count));
#endif
  WEFT_CHECK(status == cudaStreamCaptureStatusActive && count == 1,
             "an upload was recorded, and the stream has ", count, " last nodes");
  const cudaGraphNode_t node = nodes[0];
  cudaGraphNodeType type{};
  WEFT_CUDA_CALL(cudaGraphNodeGetType(node, &type));
  WEFT_CHECK(type == cudaGraphNodeTypeMemcpy, "an upload was recorded as a node of type ",
             int{type});
  return node;
}
}  // namespace

CudaGraph::~CudaGraph() {
  if (last_graph == &launches_) last_graph = nullptr;
  if (graph_) static_cast<void>(cudaGraphExecDestroy(graph_));
  if (recorded_) static_cast<void>(cudaGraphDestroy(recorded_));
  if (count_) static_cast<void>(cudaFreeHost(count_));
}

// Drivers of virtual GPUs may not write words: their graphs do without a count.
void CudaGraph::prepare_count(const CudaQueue& queue) {
  constexpr uint32_t kNotBegun = UINT32_MAX;
  void* word = nullptr;
  WEFT_CUDA_CALL(cudaMallocHost(&word, sizeof *count_));
  count_ = static_cast<uint32_t*>(word);
  launches_.interval = kInterval;
  if (write(count_, kNotBegun, queue.stream) == CUDA_SUCCESS) launches_.ended = count_;
}

void CudaGraph::note_count() {
  if (!launches_.ended) return;
  const CUresult result = write(launches_.ended, launches_.kernels.size(), queue_->stream);
  WEFT_CHECK(result == CUDA_SUCCESS, "writing the count of launches: CUDA error ",
             static_cast<int>(result));
}

void CudaGraph::add_launch(const char* kernel) {
  launches_.kernels.push_back(kernel);
  if (launches_.kernels.size() % kInterval == 0) note_count();
}

void CudaGraph::capture(const CudaQueue& queue, const std::function<void()>& work) {
  prepare_count(queue);
  WEFT_CUDA_CALL(cudaStreamBeginCapture(queue.stream, cudaStreamCaptureModeThreadLocal));
  queue_ = &queue;
  recording = this;
  on_captured_launch = [](const char* kernel) { recording->add_launch(kernel); };
  std::string trouble;
  try {
    note_count();
    work();
    note_count();
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  on_captured_launch = nullptr;
  recording = nullptr;
  queue_ = nullptr;
  // also after a failure: it must go on
  cudaError_t result = cudaStreamEndCapture(queue.stream, &recorded_);
  if (trouble.empty() && result == cudaSuccess)
    result = cudaGraphInstantiate(&graph_, recorded_, 0);
  if (trouble.empty() && result != cudaSuccess) trouble = cudaGetErrorString(result);
  if (trouble.empty()) return;
  static_cast<void>(cudaGetLastError());
  if (recorded_) static_cast<void>(cudaGraphDestroy(recorded_));
  recorded_ = nullptr;
  uploads_.clear();
  fail("the step could not be captured as a CUDA graph: ", trouble,
       "; train.graph: false runs without one");
}

void CudaGraph::launch(const CudaQueue& queue) {
  last_graph.store(&launches_, std::memory_order_release);
  last_launch.store("nothing", std::memory_order_relaxed);
  for (const Upload& u : uploads_)
    WEFT_CUDA_CALL(cudaGraphExecMemcpyNodeSetParams1D(
        graph_, u.node, u.dst, u.ring->stage(u.src, u.bytes), u.bytes, cudaMemcpyHostToDevice));
  WEFT_CUDA_CALL(cudaGraphLaunch(graph_, queue.stream));
  for (const Upload& u : uploads_) u.ring->mark(queue.stream);
}

CudaGraph* CudaGraph::in_capture() { return recording; }

void CudaGraph::add_upload(StagingRing& ring, void* dst, const void* src, std::size_t bytes) {
  // A place for the source until launch() names it: while recording, no memory can be had.
  const void* const pinned = ring.any(bytes);
  WEFT_CHECK(pinned, "an upload of ", bytes, " bytes is recorded that has not been run before");
  WEFT_CUDA_CALL(cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, queue_->stream));
  uploads_.push_back({&ring, last_copy(queue_->stream), dst, src, bytes});
}

// ---- StagingRing ----

StagingRing::~StagingRing() {
  for (Buffer& b : buffers_) {
    static_cast<void>(cudaFreeHost(b.data));
    if (b.done) static_cast<void>(cudaEventDestroy(b.done));
  }
  for (void* data : outgrown_) static_cast<void>(cudaFreeHost(data));
}

const void* StagingRing::stage(const void* src, std::size_t bytes) {
  Buffer& b = buffers_[next_];
  WEFT_CHECK(b.marked,
             "more copies staged for one launch than there are buffers: ", buffers_.size());
  next_ = (next_ + 1) % buffers_.size();
  if (!b.done) WEFT_CUDA_CALL(cudaEventCreateWithFlags(&b.done, cudaEventDisableTiming));
  WEFT_CUDA_CALL(cudaEventSynchronize(b.done));  // returns at once for an event never recorded
  if (b.bytes < bytes) {
    const std::size_t size = std::max<std::size_t>(bytes, 4096);
    void* data = nullptr;
    WEFT_CUDA_CALL(cudaMallocHost(&data, size));
    if (b.data) outgrown_.push_back(b.data);
    b.data = data;
    b.bytes = size;
  }
  std::memcpy(b.data, src, bytes);
  b.marked = false;
  return b.data;
}

void StagingRing::mark(cudaStream_t stream) {
  for (Buffer& b : buffers_) {
    if (b.marked) continue;
    WEFT_CUDA_CALL(cudaEventRecord(b.done, stream));
    b.marked = true;
  }
}

const void* StagingRing::any(std::size_t bytes) const {
  for (const Buffer& b : buffers_)
    if (b.bytes >= bytes) return b.data;
  return nullptr;
}

void StagingRing::follow() {
  for (const Buffer& b : buffers_)
    if (b.done) WEFT_CUDA_CALL(cudaEventSynchronize(b.done));
}
}  // namespace weft
