// SPDX-License-Identifier: MIT
// Collectives over the ranks of a ProcessGroup: NCCL between GPUs, TCP between CPU processes. Bits
// are equal on every rank, and in every run with as many ranks.
#pragma once

#include "src/device.h"
#include "src/ranks/process_group.h"

#include <memory>
#include <span>
#include <string>

namespace weft {
class Communicator {
 public:
  Communicator(int rank, int size)
      : rank_(rank),
        size_(size) {}

  virtual ~Communicator() = default;

  int rank() const { return rank_; }

  int size() const { return size_; }

  // What carries the sums, for people: "NCCL 2.28.9", "memory of the host", "TCP".
  virtual std::string carrier() const = 0;

  // The next updates all-reduce `bytes` of gradients each, overlapped with kernels that take
  // `seconds` at least: the way that costs the kernels least is taken where it is fast enough. The
  // same on every rank.
  virtual void plan(int64_t /*bytes*/, double /*seconds*/) {}

  // Collectives after fork() wait for what the queue has so far, and overlap with what it gets
  // next.
  virtual void fork() {}

  // The queue waits for all collectives. CUDA graphs may capture fork() and join().
  virtual void join() {}

  // In place; f32, f64, bf16, f16. Every rank calls them in the same order with the same shapes.
  virtual void all_reduce_sum(const TensorView&) = 0;

  // Each of several; the bits of a sum may depend on what it is summed with.
  virtual void all_reduce_sums(std::span<const TensorView> tensors) {
    for (const TensorView& t : tensors) all_reduce_sum(t);
  }

  // `t` is size() equal pieces; piece rank() becomes the sum. Others: undefined, but zero where all
  // were.
  virtual void reduce_scatter_sum(const TensorView& t) = 0;
  // Every rank gets piece r from rank r. Until join(), the first call may already fill the other
  // tensors.
  virtual void all_gather(const TensorView& t) = 0;

 protected:
  // Elements of each of size() pieces; Error when they are not equal. `what`: the caller's name.
  int64_t piece_elements(const TensorView& t, const char* what) const;

 private:
  const int rank_, size_;
};

// Collective. With one rank, calls do nothing. Device and group outlive it, CUDA graphs of its
// calls do not.
std::unique_ptr<Communicator> make_communicator(Device&, ProcessGroup&);

// For CUDA and two processes or more (src/ranks/cuda/). Throws Error when built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(Device&, ProcessGroup&);
std::string nccl_version();  // "2.28.9" of the library; "" of a program built without it
}  // namespace weft
