// SPDX-License-Identifier: MIT
// All-reduce and reduce-scatter between the GPUs of one host, through host memory that all
// processes map.
#pragma once

#include "src/device.h"
#include "src/ranks/process_group.h"

#include <cstddef>
#include <cuda.h>
#include <cuda_runtime.h>
#include <exception>
#include <memory>
#include <span>

namespace weft {
// A sum has three steps. Each GPU copies the terms of the other ranks to host memory by DMA. It
// fetches the terms of its own piece. One kernel adds them in rank order, in f32, and rounds once.
// Only that kernel uses SMs, so that kernels of the model keep nearly all of them. Streams wait for
// each other by flags in the same memory. Collectives run on the stream of `queue`, which may be
// captured.
class HostReduce {
 public:
  static constexpr int kMostRanks = 8;
  // Bytes/s that each GPU copies while all copy (H200: 53e9). A constant, so that every rank and
  // every run takes the same way.
  static constexpr double kBandwidth = 50e9;

  // Collective, on the current CUDA device. Null when ranks are on several hosts, when there are
  // too many, or when they can't share memory.
  static std::unique_ptr<HostReduce> make(ProcessGroup&);
  ~HostReduce();
  HostReduce& operator=(HostReduce&&) = delete;  // nor copied

  static bool takes(const TensorView& t) {  // for smaller ones, waiting costs more than copying
    return t.bytes() >= 64 << 10 &&
           (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16);
  }

  void all_reduce(std::span<const TensorView>, CudaQueue&);
  void reduce_scatter(const TensorView&, CudaQueue&);

 private:
  // Part of a tensor. Rank r sums `length` elements from begin + r * stride on, or fewer if `end`
  // comes first. The terms lie at `offset` of their slots.
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
  char *host_ = nullptr, *on_device_ = nullptr;  // file_bytes_; as the GPU sees them
  char* terms_ = nullptr;                        // a slot for each rank, on the GPU
  const int exceptions_ = std::uncaught_exceptions();
};
}  // namespace weft
