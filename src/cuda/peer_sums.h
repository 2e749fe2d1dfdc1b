// SPDX-License-Identifier: MIT
// PeerSums: sums and copies of tensors over the GPUs of one host through their copy engines.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <vector>

#include "src/cuda/peer_memory.h"
#include "src/device.h"

namespace weft {

// What a rank sums of a tensor, the others send to it with their copy engines; one kernel then adds it up,
// all terms at a time, in the order of the ranks, in f32, rounded once. Multiprocessors of the GPU are taken
// by that kernel alone. All calls are collective and run on the stream of `queue`, which may be captured;
// tensors are in cudaMalloc'ed memory that stays where it is. Where one answers false nothing was done, on no
// rank: a tensor shares its allocation with others.
class PeerSums {
 public:
  explicit PeerSums(std::unique_ptr<PeerMemory>);
  ~PeerSums();
  PeerSums(const PeerSums&) = delete;
  PeerSums& operator=(const PeerSums&) = delete;

  static constexpr std::int64_t kLeastBytes = 64 << 10;
  // What there are sums of.
  static bool takes(const TensorView& t) {
    return t.bytes() >= kLeastBytes &&
           (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16);
  }
  // As the calls of Communicator (src/communicator.h).
  bool all_reduce_sums(std::span<const TensorView>, CudaQueue&);
  void reduce_scatter_sum(const TensorView&, CudaQueue&);
  bool all_gather(const TensorView&, CudaQueue&);
  // What was gathered is here. Several tensors in a row have one meeting before and one after them.
  void finish(CudaQueue&);

 private:
  struct Split;
  template <class Copy>
  void to_each_peer(cudaStream_t, const Copy&);
  void sum_splits(std::span<const Split>, CudaQueue&);
  void share_own(const Split&, const std::vector<char*>& places, cudaStream_t);

  const std::unique_ptr<PeerMemory> memory_;
  const int rank_, size_;
  // A stream for each peer but the first: copies to different ones go at the same time.
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> sent_;
  cudaEvent_t begun_ = nullptr;
  bool gathering_ = false;
};

}  // namespace weft
