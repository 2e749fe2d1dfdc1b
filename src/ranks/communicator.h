// SPDX-License-Identifier: MIT
// Communicator: all-reduce, reduce-scatter and all-gather of tensors over the ranks of a ProcessGroup. NCCL
// between GPUs (src/cuda/), the group's own connections between CPU processes. Results are the same bits on
// every rank, and in every run with the same number of ranks.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "src/device.h"
#include "src/ranks/process_group.h"

namespace weft {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What carries the sums, for people: "NCCL 2.28.9", "memory of the host", "TCP".
  virtual std::string carrier() const = 0;

  // The next updates all-reduce `bytes` of gradients each, overlapped with kernels that take `seconds` at
  // least: the way that costs the kernels least is taken where it is fast enough. The same on every rank.
  virtual void plan(std::int64_t /*bytes*/, double /*seconds*/) {}

  // What is called from here on overlaps with what the device's queue gets, after everything that the queue
  // has been given so far (a second stream that waits for an event; on the CPU: at once).
  virtual void fork() = 0;
  // What the queue gets from here on waits for all of the collectives below. fork() and join() may be
  // captured in a CUDA graph.
  virtual void join() = 0;

  // In place, over all ranks, f32, f64, bf16, f16; every rank calls them in the same order with the same
  // shapes.
  virtual void all_reduce_sum(const TensorView&) = 0;
  // Each of several; the bits of a sum may depend on what it is summed with.
  virtual void all_reduce_sums(std::span<const TensorView> tensors) {
    for (const TensorView& t : tensors) all_reduce_sum(t);
  }
  // `t` is size() pieces of the same length; afterwards piece rank() is the sum of all ranks' (the others are
  // undefined, but zero where all ranks had zero) ...
  virtual void reduce_scatter_sum(const TensorView& t) = 0;
  // ... and here every rank has every piece r as rank r had it. Of several tensors that are gathered between
  // fork() and join(), the others' pieces may come from the first call on.
  virtual void all_gather(const TensorView& t) = 0;
};

// Collective. NCCL for a CUDA device (Error when weft was built without it), the group's connections for the
// CPU. With one rank, all calls do nothing. Device and group outlive it; CUDA graphs that captured its calls
// must be gone before it.
std::unique_ptr<Communicator> make_communicator(Device&, ProcessGroup&);

// Of CUDA devices and two processes or more (src/ranks/cuda/). An Error of a program built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(Device&, ProcessGroup&);
std::string nccl_version();  // "2.28.9" of the library; "" of a program built without it

}  // namespace weft
