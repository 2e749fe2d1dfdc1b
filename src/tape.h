// SPDX-License-Identifier: MIT
// Reverse-mode differentiation. A forward op computes its output and records a closure on the Tape.
// The backward pass runs the closures, last first: each turns the gradient of its op's output into
// gradients of its inputs, then frees what it kept. All that an op needs comes with its Ctx.
// Examples: src/ops.cpp.
#pragma once

#include "kernels/interruption.h"
#include "kernels/optimizer/loss_scale.h"
#include "src/tensor.h"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
struct Ctx;

// The gradient of one value; every copy of its Var shares it.
struct Gradient {
  Tensor tensor;         // none until a backward kernel writes it
  bool written = false;  // the first writer stores, later ones add
  bool pinned = false;   // a parameter's: `tensor` is its slice of a flat block, and stays that
  // The op that made the value recomputes it in its backward pass; what later ops do with it waits
  // here.
  bool recomputed = false;
  std::vector<std::function<void(Ctx&, const Tensor& value)>> waiting = {};
};

// A value of the computation, and its gradient (null: none is wanted).
struct Var {
  Tensor value;
  std::shared_ptr<Gradient> gradient;

  Shape shape() const { return value.shape(); }

  DType dtype() const { return value.dtype(); }

  // For a closure that needs the gradient and the shape alone.
  Var without_value() const { return {value.without_memory(), gradient}; }

  // For a closure that can wait for a value that is recomputed.
  Var kept() const { return gradient && gradient->recomputed ? without_value() : *this; }
};

class Tape {
 public:
  using Backward = std::function<void(Ctx&, const Tensor& dy)>;

  void record(const char* op, const Var& y, Backward backward) {
    record(op, y, {},
           [run = std::move(backward)](Ctx& c, const Tensor& dy, const Tensor&) { run(c, dy); });
  }

  // Of an op with two outputs: the gradient of one of them is empty when it got none.
  using BackwardOfTwo = std::function<void(Ctx&, const Tensor& dy, const Tensor& dz)>;

  void record(const char* op, const Var& y, const Var& z, BackwardOfTwo backward) {
    steps_.push_back({op, {y.gradient, z.gradient}, std::move(backward)});
  }

  // A closure that always runs, after all that are recorded from here on.
  void mark(std::function<void(Ctx&)> passed) {
    const auto run = [run = std::move(passed)](Ctx& c, const Tensor&, const Tensor&) { run(c); };
    steps_.push_back({"mark", {}, run, true});
  }

  // Runs the closures, last first; skips those whose outputs got no gradient. See backward() below.
  void run_backward(Ctx&);

  std::size_t size() const { return steps_.size(); }

 private:
  struct Step {
    const char* op;
    std::array<std::shared_ptr<Gradient>, 2> outputs;
    BackwardOfTwo backward;
    bool is_mark = false;  // runs without a gradient
  };

  std::vector<Step> steps_;
};

// Called during a backward pass: the gradients of all parameters numbered `first` and above are
// complete.
using GradientsComplete = std::function<void(Ctx&, int32_t first)>;

// Where an op runs, and what it may use. Pointers to scalars point into the queue's memory.
struct Ctx {
  Queue* queue = nullptr;
  MemoryPool* pool = nullptr;
  // null: inference, or the first forward pass of a recomputed block
  Tape* tape = nullptr;
  StepScalars* step = nullptr;      // learning rate, random seed ... of this update
  StepResults* results = nullptr;   // loss, gradient norm ... of this update
  LossScale* loss_scale = nullptr;  // null: none (f16 alone has one)
  uint32_t site = 0;                // number of the next dropout call: the whole random state
  bool training = false;            // dropout acts
  bool batch_invariant = false;     // sampling: linear() gives the same bits on any batch size
  int64_t launches = 0;             // kernels started through this context
  bool may_stop = false;            // launch() throws Interrupted on request
  const GradientsComplete* complete = nullptr;  // null: not called; must outlive the backward pass

  Tensor empty(const Shape& shape, DType dtype, const char* name = "activations") {
    return Tensor(*pool, shape, dtype, name);
  }

  Var output(const Shape& shape, DType dtype) {
    return {empty(shape, dtype), tape ? std::make_shared<Gradient>() : nullptr};
  }

  template <class Kernel>
  void launch(const Kernel& kernel) {
    if (may_stop && interrupted()) throw_interrupted();
    ++launches;
    weft::launch(*queue, kernel);
  }

  // Where a backward kernel writes the gradient of v: the first writer stores, later ones add.
  // Before an addition, a buffer that another gradient shares is copied.
  GradView grad(const Var& v);
  // t, or a copy where others hold its memory.
  Tensor unshared(const Tensor& t);
  // The gradient of v is dy itself (or dy is added to it). The caller must not write to dy
  // afterwards.
  void pass_gradient(const Var& v, const Tensor& dy);
  // A model calls this where nothing yet uses a parameter from number `first` on: the backward pass
  // tells `complete` when it is back here.
  void mark(int32_t first);
};

// Differentiates `objective`, a Var recorded last by mean(): its gradient is step->loss_gradient.
void backward(Ctx&, const Var& objective);

// Activation checkpointing (Chen et al. 2016, arXiv 1604.06174): keeps input and output of `block`,
// which outlives the step. The backward pass runs it again, with the same dropout masks: equal bits
// of gradients.
using Block = std::function<Var(Ctx&, const Var&)>;
Var recompute(Ctx&, const Block& block, const Var& x);
}  // namespace weft
