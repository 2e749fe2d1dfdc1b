// SPDX-License-Identifier: MIT
// PeerMemory: memory of the GPUs of one host, one process each, that all of them write, and flags in it for
// which streams wait.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/ranks/process_group.h"
#include "src/tensor.h"

namespace weft {

class PeerMemory {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{16} << 20;
  static constexpr int kMostRanks = 8;
  enum class Flag { arrived, done };

  // Collective, of the CUDA device that is current. Null where ranks are on several hosts or more than
  // kMostRanks, or a GPU does not reach another one's memory.
  static std::unique_ptr<PeerMemory> make(ProcessGroup&);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // kSlotBytes on the GPU of `of_rank`, for what `from_rank` sends there.
  char* slot(int of_rank, int from_rank) const;
  // The stream goes on when those of all ranks have come to a meeting of this flag; what they did before is
  // then seen. Two meetings of a flag have one of the other between them.
  void meet(Flag, cudaStream_t) const;
  // Collective: where each rank has this tensor, as this process sees it; empty when a rank has it in an
  // allocation too small to be opened by others. cudaMalloc'ed memory that stays where it is.
  std::vector<char*> everywhere(const TensorView&);

 private:
  static constexpr int kFlags = 2;

  explicit PeerMemory(ProcessGroup&);
  bool answers();
  void set_own_flags();
  void* opened(int rank, unsigned long long buffer, const cudaIpcMemHandle_t&);
  CUdeviceptr flag(int of_rank, Flag, int from_rank) const;

  ProcessGroup& group_;
  const int rank_, size_;
  std::vector<char*> arenas_;                                   // by rank: flags, then a slot for each rank
  std::map<std::pair<int, unsigned long long>, void*> opened_;  // by rank and buffer
  std::map<unsigned long long, cudaIpcMemHandle_t> handles_;    // of own buffers
};

// Opening and making things is no work of a stream that is being captured.
class OutsideCapture {
 public:
  OutsideCapture();
  ~OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace weft
