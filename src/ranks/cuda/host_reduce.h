// SPDX-License-Identifier: MIT
// HostReduce: all-reduce and reduce-scatter between the GPUs of one host through memory of the host that all
// of their processes have mapped.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "src/device.h"
#include "src/ranks/process_group.h"

namespace weft {

// Each rank's GPU copies the terms of the others' sums to the host with its copy engine, and fetches its own;
// one kernel then adds them up, in the order of the ranks, in f32, rounded once. Links between the GPUs stay
// asleep, and multiprocessors are taken by that kernel alone: the bandwidth of PCIe is enough for sums that
// overlap with a backward pass. Streams meet by flags in the same memory.
// Both sums are collective and run on the stream of `queue`, which may be captured.
class HostReduce {
 public:
  static constexpr int kMostRanks = 8;
  // Bytes a second that a GPU copies there or back while all others do the same, or somewhat fewer (H200:
  // 53e9). A constant, so that runs on the same GPUs take the same way.
  static constexpr double kBandwidth = 50e9;

  // Collective, of the CUDA device that is current. Null where ranks are on several hosts or more than
  // kMostRanks, or one does not see what another one has.
  static std::unique_ptr<HostReduce> make(ProcessGroup&);
  ~HostReduce();
  HostReduce(const HostReduce&) = delete;
  HostReduce& operator=(const HostReduce&) = delete;

  static bool takes(const TensorView& t) {  // smaller ones take longer to meet than to travel
    return t.bytes() >= 64 << 10 &&
           (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16);
  }
  // As the calls of Communicator (src/ranks/communicator.h).
  void all_reduce(std::span<const TensorView>, CudaQueue&);
  void reduce_scatter(const TensorView&, CudaQueue&);

 private:
  // Part of a tensor: rank r sums the `length` elements from begin + r * stride on, or as many as there are
  // before `end`. Its terms lie at `offset` of their slots.
  struct Split;
  enum class Flag { arrived, done };

  HostReduce(int rank, int size);
  void map(int file);
  void pin();
  bool answers();
  char* slot(int from, int to) const;
  CUdeviceptr flag(int of_rank, Flag, int from_rank) const;
  void meet(Flag, cudaStream_t) const;
  void sum(std::span<const Split>, CudaQueue&, bool share);

  const int rank_, size_;
  const std::size_t slot_bytes_, file_bytes_;
  char *host_ = nullptr,
       *terms_ = nullptr;      // host_: of file_bytes_; terms_: a slot for each rank, on the GPU
  char* on_device_ = nullptr;  // host_, as the GPU sees it
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace weft
