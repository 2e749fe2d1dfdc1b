// SPDX-License-Identifier: MIT
// PeerSums: sums over the GPUs of one host that leave their multiprocessors to the training step.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/device.h"
#include "src/process_group.h"

namespace weft {

// Each rank sums one piece of a tensor: the others' pieces come to it through the copy engines, it adds them
// in the order of the ranks, its own first, and sends the sum to all. Kernels that fill the GPU with one wave
// of blocks run twice as long beside any kernel that holds a multiprocessor; beside copies they do not.
class PeerSums {
 public:
  // Collective, of the CUDA device that is current. Null where ranks are on several hosts, or a GPU does not
  // reach another one's memory.
  static std::unique_ptr<PeerSums> make(ProcessGroup&);
  ~PeerSums();
  PeerSums(const PeerSums&) = delete;
  PeerSums& operator=(const PeerSums&) = delete;

  // Of small tensors, CUDA may keep several in one block, which another process opens as a whole.
  static bool takes(const TensorView& t) {
    return t.bytes() >= (2 << 20) &&
           (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16);
  }
  // In place, on the stream of `queue`, which may be captured. Memory from cudaMalloc that stays where it is.
  void sum(const TensorView&, CudaQueue& queue);

 private:
  enum Flag { kArrived, kDone, kFlags };

  explicit PeerSums(ProcessGroup&);
  bool answers();
  void set_own_flags();
  std::vector<char*> everywhere(const TensorView&);
  void* opened(int rank, unsigned long long buffer, const cudaIpcMemHandle_t&);
  CUdeviceptr flag(int of_rank, Flag, int from_rank) const;
  char* slot(int of_rank, int from_rank) const;
  void signal_all(Flag, cudaStream_t) const;
  void wait_for_all(Flag, cudaStream_t) const;
  void sum_chunk(const TensorView& chunk, const std::vector<char*>& places, CudaQueue&) const;

  ProcessGroup& group_;
  const int rank_, size_;
  std::vector<char*> arenas_;                                   // by rank: flags, then a slot for each rank
  std::map<std::pair<int, unsigned long long>, void*> opened_;  // by rank and buffer
  std::map<unsigned long long, cudaIpcMemHandle_t> handles_;    // of own buffers
};

}  // namespace weft
