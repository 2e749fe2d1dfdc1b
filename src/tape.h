// SPDX-License-Identifier: MIT
// Reverse-mode differentiation. A Tape is a list of closures, run backwards and dropped as it goes: dropping
// a closure frees the activations it saved. There are no globals: everything an op needs comes with its Ctx.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/optimizer/loss_scale.h"
#include "kernels/optimizer/step_scalars.h"
#include "kernels/queue.h"
#include "src/tensor.h"

namespace weft {

struct Ctx;

struct GradSlot {  // shared by every copy of a Var
  Tensor grad;
  bool written = false;
  bool fixed = false;  // a parameter's: grad is its place in a flat block
  // The op that made the value makes it again in its backward pass. Closures of later ops then need not keep
  // it: what they do with it waits here, and runs when it is there.
  bool made_again = false;
  std::vector<std::function<void(Ctx&, const Tensor& value)>> waiting = {};
};

struct Var {  // a tensor, plus where its gradient goes (null: no gradient wanted)
  Tensor value;
  std::shared_ptr<GradSlot> slot;

  Shape shape() const { return value.shape(); }
  DType dtype() const { return value.dtype(); }
  // The same for gradients alone: what a closure keeps that does not need the value.
  Var without_value() const { return {value.without_memory(), slot}; }
  // What a closure keeps that can wait for a value that is made again.
  Var kept() const { return slot && slot->made_again ? without_value() : *this; }
};

class Tape;

// Hears, while a backward pass goes on, that the gradients of all parameters numbered `first` and above are
// complete.
using GradientsComplete = std::function<void(Ctx&, std::int32_t first)>;

struct Ctx {
  Queue* queue = nullptr;
  MemoryPool* pool = nullptr;
  Tape* tape = nullptr;               // null: inference, or the discarded forward of a recomputed block
  const StepScalars* step = nullptr;  // in the queue's memory; needed by dropout and by the loss
  StepResults* results = nullptr;     // in the queue's memory
  LossScale* loss_scale = nullptr;    // in the queue's memory; null: none (other types than f16)
  std::uint32_t site = 0;        // number of the next dropout call: copying it is saving the random state
  bool training = false;         // dropout acts
  bool batch_invariant = false;  // sampling: linear() promises the same bits on any batch size
  std::int64_t launches = 0;     // kernels started through this context
  const GradientsComplete* complete = nullptr;  // null: nobody wants to know; must outlive the backward pass

  Tensor empty(const Shape& shape, DType dtype, const char* name = "activations") {
    return Tensor(*pool, shape, dtype, name);
  }
  Var output(const Shape& shape, DType dtype) {
    return {empty(shape, dtype), tape ? std::make_shared<GradSlot>() : nullptr};
  }
  // Called by a model when nothing that was recorded so far uses a parameter numbered `first` or above: the
  // backward pass, come back to here, tells `complete`.
  void mark(std::int32_t first);
  // Where a backward kernel writes the gradient of v: the first writer stores, later ones add. What is added
  // to is nobody else's: a buffer that another slot has, too, is copied first.
  GradView grad(const Var& v);
  // The gradient of v is dy itself (or dy is added to it). The caller must not write to dy afterwards.
  void pass_gradient(const Var& v, const Tensor& dy);
  template <class Kernel>
  void launch(const Kernel& kernel) {
    ++launches;
    weft::launch(*queue, kernel);
  }
};

class Tape {
 public:
  using Backward = std::function<void(Ctx&, const Tensor& dy)>;
  void record(const char* op, const Var& y, Backward backward) {
    record(op, y, {}, [run = std::move(backward)](Ctx& c, const Tensor& dy, const Tensor&) { run(c, dy); });
  }
  // Of an op with two outputs: the gradient of one of them is empty when it got none.
  using BackwardOfTwo = std::function<void(Ctx&, const Tensor& dy, const Tensor& dz)>;
  void record(const char* op, const Var& y, const Var& z, BackwardOfTwo backward) {
    steps_.push_back({op, {y.slot, z.slot}, std::move(backward)});
  }
  // A closure that always runs, after all that are recorded from here on.
  void mark(std::function<void(Ctx&)> passed) {
    const auto run = [run = std::move(passed)](Ctx& c, const Tensor&, const Tensor&) { run(c); };
    steps_.push_back({"mark", {}, run, true});
  }
  // Runs the closures, last first. Those whose outputs got no gradient are skipped. Called through backward()
  // below.
  void run_backward(Ctx&);
  std::size_t size() const { return steps_.size(); }

 private:
  struct Step {
    const char* op;
    std::array<std::shared_ptr<GradSlot>, 2> slots;
    BackwardOfTwo backward;
    bool is_mark = false;  // runs without a gradient
  };
  std::vector<Step> steps_;
};

// Differentiates `objective`, a Var recorded last by mean(): its gradient is step->loss_gradient.
void backward(Ctx&, const Var& objective);

// Runs `block` keeping only its input and output; the backward pass runs it again (Chen et al. 2016, arXiv
// 1604.06174), with the same dropout masks: gradients are the same to the last bit. The closure must outlive
// the step.
using Block = std::function<Var(Ctx&, const Var&)>;
Var recompute(Ctx&, const Block& block, const Var& x);

}  // namespace weft
