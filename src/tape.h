// SPDX-License-Identifier: MIT
// Reverse-mode differentiation. A forward op computes its output and records a closure on the Tape.
// The backward pass runs the closures, last first. Each turns the gradient of its op's output into
// gradients of its inputs, then frees the tensors that it kept. A Ctx holds all that an op needs.
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
  // The op that made the value computes it again in its backward pass. Closures of later ops that
  // need the value wait here until then.
  bool recomputed = false;  // by its own op; recompute() below repeats a whole block, on a new tape
  std::vector<std::function<void(Ctx&, const Tensor& value)>> waiting = {};
};

// A value of the computation, and its gradient (null: none is wanted).
struct Var {
  Tensor value;
  std::shared_ptr<Gradient> gradient;

  Shape shape() const { return value.shape(); }

  DType dtype() const { return value.dtype(); }

  // The same without memory, for a closure that needs gradient and shape only.
  Var without_value() const { return {value.without_memory(), gradient}; }

  // What a closure keeps that can wait for a recomputed value: no memory where it will be
  // recomputed.
  Var kept() const { return gradient && gradient->recomputed ? without_value() : *this; }
};

class Tape {
 public:
  using Backward = std::function<void(Ctx&, const Tensor& dy)>;

  void record(const char* op, const Var& y, Backward backward) {
    record(op, y, {},
           [run = std::move(backward)](Ctx& c, const Tensor& dy, const Tensor&) { run(c, dy); });
  }

  // The closure of an op with outputs y and z. dy or dz is empty where no gradient arrived.
  using BackwardOfTwo = std::function<void(Ctx&, const Tensor& dy, const Tensor& dz)>;

  void record(const char* op, const Var& y, const Var& z, BackwardOfTwo backward) {
    steps_.push_back({op, {y.gradient, z.gradient}, std::move(backward)});
  }

  // Runs in the backward pass even where no gradient arrives, after everything recorded later.
  void on_backward(std::function<void(Ctx&)> closure) {
    const auto run = [run = std::move(closure)](Ctx& c, const Tensor&, const Tensor&) { run(c); };
    steps_.push_back({"on_backward", {}, run, true});
  }

  // Runs the closures, last first; skips those whose outputs got no gradient. See backward() below.
  void run_backward(Ctx&);

  std::size_t size() const { return steps_.size(); }

 private:
  struct Step {
    const char* op;
    std::array<std::shared_ptr<Gradient>, 2> outputs;
    BackwardOfTwo backward;
    bool always = false;  // runs without a gradient
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
  uint32_t site = 0;                // number of the next dropout call; there is no other state
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
  // A buffer that another gradient shares is copied before the addition.
  GradView grad(const Var& v);
  // t, or a copy of it where another tensor holds the same memory.
  Tensor unshared(const Tensor& t);
  // Makes dy the gradient of v, or adds it to the one that is there. The caller must not write to
  // dy afterwards.
  void pass_gradient(const Var& v, const Tensor& dy);
  // A model calls this before its first use of any parameter numbered `first` or above. When the
  // backward pass arrives at this point, the gradients of those parameters are complete, and it
  // calls *complete with `first`.
  void gradients_complete_from(int32_t first);
};

// Differentiates `objective`, a Var recorded last by mean(): its gradient is step->loss_gradient.
void backward(Ctx&, const Var& objective);

// Activation checkpointing (Chen et al. 2016, arXiv 1604.06174): keeps input and output of `block`
// only. The backward pass runs it again with the same dropout masks, so gradients have equal bits.
// `block` must outlive the backward pass.
using Block = std::function<Var(Ctx&, const Var&)>;
Var recompute(Ctx&, const Block& block, const Var& x);
}  // namespace weft
