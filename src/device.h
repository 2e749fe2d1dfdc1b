// SPDX-License-Identifier: MIT
// Device: a queue, the pool its tensors come from, and copies. GraphedStep: work that is replayed.
#pragma once

#include "kernels/queue.h"
#include "src/tensor.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// A point in the work of a device's queue, like a CUDA event.
class QueueMark {
 public:
  virtual ~QueueMark() = default;
  virtual void record() = 0;  // sets the point behind all work enqueued so far
  // Waits until the queue has passed the point recorded last. Throws Error when work before it has
  // failed.
  virtual void wait() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // dst.bytes() bytes from the host; blocks
  virtual void upload(const TensorView& dst, const void* src) = 0;
  virtual void download(void* dst, const TensorView& src) = 0;  // waits for the queue
  // Like upload, but does not wait for the queue; `src` may change as soon as the call returns. In
  // the work of a GraphedStep, each run() copies from `src` again, so its address must stay valid.
  virtual void upload_async(void* dst, const void* src, std::size_t bytes) = 0;
  virtual void zero(const TensorView& dst) = 0;
  virtual void synchronize() = 0;
  virtual std::unique_ptr<QueueMark> make_mark() = 0;
  virtual std::string description() const = 0;  // "NVIDIA H200, 139.8 GiB, driver 580.159, sm_90"
  virtual std::size_t memory_free() const = 0;  // bytes that a tensor could still get

  bool is_cuda() const { return name.starts_with("cuda"); }

  // FLOP/s of a large matmul of this type, measured here on first use. MFU is a share of it.
  double peak_flops(DType compute);
  // Bytes a second, read and written, of copying a large tensor, measured on first use.
  double copy_bandwidth();

  std::string name;            // "cpu", "cuda:0"
  int compute_capability = 0;  // of a GPU: 80, 90 ...
  Queue queue;
  std::shared_ptr<MemoryPool> pool;
  // Host memory that kernels write to. What they wrote before a mark is there after the mark's
  // wait().
  std::shared_ptr<MemoryPool> host_pool;

 private:
  double peak_flops_[6] = {}, copy_bandwidth_ = 0;
};

// "cpu", "cuda", "cuda:1", or "auto" (a GPU if there is one). Errors say what is missing and what
// to do.
std::unique_ptr<Device> make_device(const std::string& name);
std::unique_ptr<Device> make_cuda_device(int index);  // in builds with CUDA alone

int gpu_count();  // that this process sees; 0 without a driver, and when built without CUDA

// Copies a tensor to the host as doubles, whatever its type.
std::vector<double> to_host(Device&, const TensorView&);

// Code that runs eagerly the first times, and is replayed as a CUDA graph afterwards.
class GraphedStep {
 public:
  // `enabled` false (or a CPU device): run() just calls its function.
  GraphedStep(Device&, bool enabled);
  ~GraphedStep();
  GraphedStep(GraphedStep&&) noexcept;

  // Calls 1 and 2 run `work` (warming pools and libraries), call 3 captures it and launches, later
  // calls replay. `work` must do the same launches every time, and no host synchronisation. Tensors
  // it makes come from the graph side of the pool (src/tensor.h); what it reads and writes besides
  // must stay where it is.
  void run(const std::function<void()>& work);
  bool replaying() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace weft
