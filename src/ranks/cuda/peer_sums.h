// SPDX-License-Identifier: MIT
// PeerSums: sums and copies of tensors over the GPUs of one host through their copy engines.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/device.h"
#include "src/ranks/cuda/host_memory.h"
#include "src/ranks/cuda/peer_memory.h"

namespace weft {

// What a rank sums of a tensor, the others send to it with their copy engines; one kernel then adds it up,
// all terms at a time, in the order of the ranks, in f32, rounded once. Multiprocessors of the GPU are taken
// by that kernel alone. There are two ways, of the same bits: straight to the other GPU's memory, or through
// the host's. The first is fast, but links between GPUs that have been idle for 50 ms sleep, and awake
// they likely take power that the multiprocessors then lack; the second is for sums that have time (plan()).
// All calls are collective and run on the stream of `queue`, which may be captured; tensors are in
// cudaMalloc'ed memory that stays where it is. Where one answers false nothing was done, on no rank: a tensor
// shares its allocation with others.
class PeerSums {
 public:
  enum class Way { as_planned, straight, host };
  // `host`: of host_bytes() for each rank; null: all goes straight.
  PeerSums(std::unique_ptr<PeerMemory>, std::unique_ptr<HostMemory> host, Way);
  ~PeerSums();
  PeerSums(const PeerSums&) = delete;
  PeerSums& operator=(const PeerSums&) = delete;

  static constexpr std::int64_t kLeastBytes = 64 << 10;
  static constexpr std::size_t host_bytes() { return kHostBytes; }
  // What there are sums of.
  static bool takes(const TensorView& t) {
    return t.bytes() >= kLeastBytes &&
           (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16);
  }
  std::string way() const;  // for people
  // As the calls of Communicator (src/ranks/communicator.h).
  void plan(std::int64_t bytes, double seconds);
  bool all_reduce_sums(std::span<const TensorView>, CudaQueue&);
  void reduce_scatter_sum(const TensorView&, CudaQueue&);
  bool all_gather(const TensorView&, CudaQueue&);
  // What was gathered is here. Several tensors in a row have one meeting before and one after them.
  void finish(CudaQueue&);

 private:
  struct Split;
  static constexpr std::size_t kHostBytes = std::size_t{32} << 20;

  std::int64_t slot_elements(const TensorView&) const;
  std::size_t host_slot_bytes() const;
  // Of the host, what rank `from` has for rank `to`; for itself: what it has for all.
  char* host_slot(int from, int to) const;
  template <class Copy>
  void to_each_peer(cudaStream_t, const Copy&);
  void send_terms(std::span<const Split>, cudaStream_t);
  void fetch_terms(std::span<const Split>, cudaStream_t);
  void sum_splits(std::span<const Split>, CudaQueue&);
  void share_own(const Split&, const std::vector<char*>& places, cudaStream_t);
  void fetch_shared(const Split&, cudaStream_t);

  const std::unique_ptr<PeerMemory> memory_;
  const std::unique_ptr<HostMemory> host_;
  const int rank_, size_;
  // A stream for each peer but the first: copies to different ones go at the same time.
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> sent_;
  cudaEvent_t begun_ = nullptr;
  const Way way_;
  bool by_host_, gathering_ = false;
};

}  // namespace weft
