// SPDX-License-Identifier: MIT
// Tensor: shared, pooled, contiguous, row-major memory with a shape. Kernels take its view.
#pragma once

#include "kernels/view.h"
#include "src/memory.h"

namespace weft {

using Shape = std::vector<std::int64_t>;

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
  std::int64_t size() const { return view_.size(); }

  // The same memory in another shape of the same size.
  Tensor reshaped(const Shape& shape) const {
    Tensor t = *this;
    t.set_shape(shape);
    WEFT_CHECK(t.size() == size(), "reshape keeps the number of elements: ", shape_text(view_), " to ",
               shape_text(t.view_));
    return t;
  }
  // `count` elements from `offset`, in a shape of that size: a part of a flat block, which it keeps alive.
  Tensor slice(std::int64_t offset, const Shape& shape) const {
    Tensor t = *this;
    t.set_shape(shape);
    WEFT_CHECK(offset >= 0 && offset + t.size() <= size(), "slice inside ", shape_text(view_));
    t.view_.data = static_cast<char*>(view_.data) + offset * size_of(view_.dtype);
    return t;
  }
  bool is_shared() const { return memory_.use_count() > 1; }  // others hold its memory
  // Shape and type alone: the memory is not kept alive.
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
