// SPDX-License-Identifier: MIT
#include "src/tape.h"

#include "kernels/layers/pointwise.h"

#include <cstddef>
#include <memory>

namespace weft {
void Ctx::gradients_complete_from(int32_t first) {
  if (tape && complete) tape->on_backward([first](Ctx& c) { (*c.complete)(c, first); });
}

GradView Ctx::grad(const Var& v) {
  if (!v.gradient) return {};
  Tensor& gradient = v.gradient->tensor;
  if (!gradient) gradient = empty(v.shape(), v.dtype());
  if (v.gradient->written && !v.gradient->pinned) gradient = unshared(gradient);
  const GradView view{gradient, v.gradient->written};
  v.gradient->written = true;
  return view;
}

Tensor Ctx::unshared(const Tensor& t) {
  if (!t.is_shared()) return t;
  const Tensor own = empty(t.shape(), t.dtype());
  launch(Add{.out = {own}, .x = t});
  return own;
}

// A gradient without a buffer takes dy as its own; otherwise dy is added.
void Ctx::pass_gradient(const Var& v, const Tensor& dy) {
  if (!v.gradient) return;
  if (!v.gradient->tensor && v.dtype() == dy.dtype()) {
    v.gradient->tensor = dy;
    v.gradient->written = true;
  } else {
    launch(Add{.out = grad(v), .x = dy});
  }
}

void Tape::run_backward(Ctx& ctx) {
  while (!steps_.empty()) {
    // Taken off the list: at the end of this iteration its closure dies, and with it what the op
    // kept.
    const Step step = std::move(steps_.back());
    steps_.pop_back();
    std::array<Tensor, 2> gradients;
    bool any = step.always;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!step.outputs[i] || !step.outputs[i]->written) continue;
      any = true;
      gradients[i] = std::exchange(step.outputs[i]->tensor, {});
      step.outputs[i]->written = false;
    }
    if (any) step.backward(ctx, gradients[0], gradients[1]);
  }
}

void backward(Ctx& ctx, const Var& objective) {
  WEFT_CHECK(ctx.tape && objective.gradient, "backward: the objective was computed without a tape");
  WEFT_CHECK(objective.value.size() == 1,
             "backward: the objective must be the result of mean(), got ",
             shape_text(objective.value));
  // with no gradient tensor: mean() takes step->loss_gradient for it
  objective.gradient->written = true;
  ctx.tape->run_backward(ctx);
}

Var recompute(Ctx& ctx, const Block& block, const Var& x) {
  if (!ctx.tape) return block(ctx, x);
  const Ctx start = ctx;  // the number of the next dropout call, among others
  ctx.tape = nullptr;
  const Var y{block(ctx, Var{x.value, nullptr}).value, std::make_shared<Gradient>()};
  ctx.tape = start.tape;
  ctx.tape->record("recompute", y, [start, block, x](Ctx&, const Tensor& dy) {
    Tape tape;
    Ctx again = start;
    again.tape = &tape;
    again.pass_gradient(block(again, x), dy);
    tape.run_backward(again);
  });
  return y;
}
}  // namespace weft
