// SPDX-License-Identifier: MIT
// Memory that the kernels of a queue read and write, and copies between it and the host. Each
// function exists for both queues, and for a Queue, which holds either.
#pragma once

#include "kernels/queue.h"

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace weft {
// Aligned to 256 bytes; nullptr where there is not enough.
void* allocate(CpuQueue&, std::size_t bytes);
void* allocate(CudaQueue&, std::size_t bytes);
void release(CpuQueue&, void* memory);
void release(CudaQueue&, void* memory);

// Both wait: for the copy, and for all work before it. `device` is memory of the queue.
void upload(CpuQueue&, void* device, const void* host, std::size_t bytes);
void upload(CudaQueue&, void* device, const void* host, std::size_t bytes);
void download(CpuQueue&, void* host, const void* device, std::size_t bytes);
void download(CudaQueue&, void* host, const void* device, std::size_t bytes);

// Enqueues a copy from pinned memory. A kernel reads few bytes: they are there sooner than by
// cudaMemcpyAsync, for which the stream's kernels would wait.
void upload_pinned(CudaQueue&, void* device, const void* pinned, std::size_t bytes);

// Enqueues: bytes become 0.
void zero(CpuQueue&, void* device, std::size_t bytes);
void zero(CudaQueue&, void* device, std::size_t bytes);

// A stream of the current GPU and what its kernels need. `workspace`: kWorkspaceBytes of its
// memory.
CudaQueue make_cuda_queue(void* workspace);

// "cpu" or "cuda", the first GPU; for as long as the process runs. Throws Error where there is
// none.
Queue open_queue(const std::string& device);

inline void upload(Queue& queue, void* device, const void* host, std::size_t bytes) {
  std::visit([&](auto& q) { upload(q, device, host, bytes); }, queue);
}

inline void download(Queue& queue, void* host, const void* device, std::size_t bytes) {
  std::visit([&](auto& q) { download(q, host, device, bytes); }, queue);
}

inline void zero(Queue& queue, void* device, std::size_t bytes) {
  std::visit([&](auto& q) { zero(q, device, bytes); }, queue);
}

// ---- tensors without a pool, as minimal.cpp makes them ----

// A view of elements at `data`, in a shape of 1 to 5 axes.
inline TensorView view_of(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  for (const int64_t extent : shape) view.shape[view.rank++] = extent;
  return view;
}

// The queue must outlive it. Throws Error where there is not enough.
std::shared_ptr<void> take_zeros(Queue& queue, std::size_t bytes);

template <class T>
void upload(Queue& queue, void* device, const std::vector<T>& values) {
  upload(queue, device, values.data(), values.size() * sizeof(T));
}

// A tensor of any type, as doubles.
std::vector<double> to_host(Queue&, const TensorView&);
}  // namespace weft
