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

  // Chooses the carrier for the updates that follow. Each all-reduces `bytes` of gradients while
  // kernels run for at least `seconds`. Every rank passes the same numbers.
  virtual void plan(int64_t /*bytes*/, double /*seconds*/) {}

  // Collectives called after fork() wait for the queue's launches so far, and overlap with those
  // that follow.
  virtual void fork() {}

  // The queue waits for all collectives. CUDA graphs may capture fork() and join().
  virtual void join() {}

  // In place; f32, f64, bf16, f16. Every rank calls them in the same order with the same shapes.
  virtual void all_reduce_sum(const TensorView&) = 0;

  // The same for several tensors. The bits of a sum may depend on which tensors come together.
  virtual void all_reduce_sums(std::span<const TensorView> tensors) {
    for (const TensorView& t : tensors) all_reduce_sum(t);
  }

  // `t` consists of size() equal pieces. Piece rank() becomes its sum over the ranks. The other
  // pieces are undefined afterwards, but stay zero where they were zero on every rank.
  virtual void reduce_scatter_sum(const TensorView& t) = 0;
  // Piece r of `t` comes from rank r, on every rank. Until join(), the first of several calls may
  // already write to the tensors of the later ones.
  virtual void all_gather(const TensorView& t) = 0;

 protected:
  // Elements of each of size() pieces; Error when they are not equal. `what`: the caller's name.
  int64_t piece_elements(const TensorView& t, const char* what) const;

 private:
  const int rank_, size_;
};

// Collective. With one rank, all calls do nothing. The device and the group must outlive the
// communicator. CUDA graphs that captured its calls must not.
std::unique_ptr<Communicator> make_communicator(Device&, ProcessGroup&);

// For CUDA and two processes or more (src/ranks/cuda/). Throws Error when built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(Device&, ProcessGroup&);
std::string nccl_version();  // "2.28.9" of the library; "" of a program built without it
}  // namespace weft
