// SPDX-License-Identifier: MIT
// Tensor: shared, pooled, contiguous, row-major memory with a shape. Kernels take its view.
#pragma once

#include "kernels/view.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// A caching allocator for all tensors, with free lists by rounded size. Kernels of a queue run in
// order, so a block that the host frees can be given out again at once.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  using Allocate = std::function<void*(std::size_t)>;  // returns null when there is no more memory
  using Free = std::function<void(void*)>;

  MemoryPool(std::string where, Allocate allocate, Free free);
  ~MemoryPool();
  MemoryPool& operator=(MemoryPool&&) = delete;  // nor copied

  // Memory at a multiple of 256 bytes; the last owner's release puts it on the free list. `name` is
  // a string literal, under which table() counts it ("activations"). Throws Error when memory is
  // out, or when a frozen pool would have to grow.
  std::shared_ptr<void> take(std::size_t bytes, const char* name);

  // While a CUDA graph is captured the pool must not grow.
  void freeze(bool frozen) { frozen_ = frozen; }

  // Gives free blocks back to the driver; those of the graph side only while no graph is held.
  void trim();

  // A captured graph writes to the addresses of its capture, although its tensors are free by then.
  // So code that is captured takes memory from free lists of its own, the graph side. Other code
  // never does.
  void use_graph_side(bool graph_side) { side_ = graph_side ? 1 : 0; }

  void hold_graph() { ++graphs_; }

  void release_graph() { --graphs_; }

  std::size_t reserved() const { return reserved_; }

  std::size_t in_use() const { return in_use_; }

  std::size_t peak() const { return peak_; }  // largest in_use() since the last reset

  void reset_peak() { peak_ = in_use_; }

  // One line: bytes in use at the peak by name, largest first, then peak, in use and reserved.
  std::string table() const;

 private:
  void* take_free(std::size_t bytes);
  void give_back(void* p, std::size_t bytes, int side, const char* name);

  std::string where_;
  Allocate allocate_;
  Free release_;
  std::map<std::size_t, std::vector<void*>> free_[2];  // by size; [1]: the graph side
  int side_ = 0, graphs_ = 0;
  std::map<std::string, std::size_t> in_use_by_name_, peak_by_name_;
  std::size_t reserved_ = 0, in_use_ = 0, peak_ = 0;
  bool frozen_ = false;
};

std::shared_ptr<MemoryPool> make_cpu_pool();

// "1.25 GiB"
std::string bytes_text(std::size_t bytes);

using Shape = std::vector<int64_t>;

class Tensor {
 public:
  Tensor() = default;

  // Uninitialised memory from `pool`, accounted under `name`.
  Tensor(MemoryPool& pool, const Shape& shape, DType dtype, const char* name = "activations") {
    set_shape(shape);
    view_.dtype = dtype;
    memory_ = pool.take(static_cast<std::size_t>(view_.bytes()), name);
    view_.data = memory_.get();
  }

  operator TensorView() const { return view_; }  // every kernel takes views

  const TensorView& view() const { return view_; }

  explicit operator bool() const { return static_cast<bool>(memory_); }

  Shape shape() const { return {view_.shape, view_.shape + view_.rank}; }

  DType dtype() const { return view_.dtype; }

  int64_t size() const { return view_.size(); }

  // The same memory in another shape of the same size.
  Tensor reshaped(const Shape& shape) const {
    Tensor t = *this;
    t.set_shape(shape);
    WEFT_CHECK(t.size() == size(), "reshape keeps the number of elements: ", shape_text(view_),
               " to ", shape_text(t.view_));
    return t;
  }

  // The elements from `offset` on, as `shape`: a part of a flat block, which stays alive.
  Tensor slice(int64_t offset, const Shape& shape) const {
    Tensor t = *this;
    t.set_shape(shape);
    WEFT_CHECK(offset >= 0 && offset + t.size() <= size(), "slice inside ", shape_text(view_));
    t.view_.data = static_cast<char*>(view_.data) + offset * size_of(view_.dtype);
    return t;
  }

  bool is_shared() const { return memory_.use_count() > 1; }  // others hold its memory

  // Shape and type without memory.
  Tensor without_memory() const {
    Tensor t = *this;
    t.memory_ = nullptr;
    t.view_.data = nullptr;
    return t;
  }

 private:
  void set_shape(const Shape& shape) {
    WEFT_CHECK(!shape.empty() && shape.size() <= 5, "a tensor has 1 to 5 axes, got ", shape.size());
    view_.rank = static_cast<int>(shape.size());
    for (std::size_t i = 0; i < 5; ++i) view_.shape[i] = i < shape.size() ? shape[i] : 1;
  }

  std::shared_ptr<void> memory_;
  TensorView view_;
};
}  // namespace weft
