// SPDX-License-Identifier: MIT
// The backward walk, where gradients go, and recompute.
#include "src/tape.h"

#include "kernels/layers/pointwise.h"

namespace weft {

void Ctx::mark(std::int32_t first) {
  if (tape && complete) tape->mark([first](Ctx& c) { (*c.complete)(c, first); });
}

GradView Ctx::grad(const Var& v) {
  if (!v.slot) return {};
  Tensor& gradient = v.slot->grad;
  if (!gradient) gradient = empty(v.shape(), v.dtype());
  if (v.slot->written && !v.slot->fixed && gradient.is_shared()) {
    const Tensor own = empty(v.shape(), v.dtype());
    launch(Add{.out = {own}, .x = gradient});
    gradient = own;
  }
  const GradView view{gradient, v.slot->written};
  v.slot->written = true;
  return view;
}

// dy is handed over to a slot that has no buffer, and added otherwise (a parameter's slot has its slice from
// the start).
void Ctx::pass_gradient(const Var& v, const Tensor& dy) {
  if (!v.slot) return;
  if (!v.slot->grad && v.dtype() == dy.dtype()) {
    v.slot->grad = dy;
    v.slot->written = true;
  } else {
    launch(Add{.out = grad(v), .x = dy});
  }
}

void Tape::run_backward(Ctx& ctx) {
  while (!steps_.empty()) {
    // Taken off the list before it runs: its closure, and with it what the op saved, dies at the end of this
    // turn.
    const Step step = std::move(steps_.back());
    steps_.pop_back();
    std::array<Tensor, 2> gradients;
    bool any = step.is_mark;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!step.slots[i] || !step.slots[i]->written) continue;
      any = true;
      gradients[i] = std::exchange(step.slots[i]->grad, {});
      step.slots[i]->written = false;
    }
    if (any) step.backward(ctx, gradients[0], gradients[1]);
  }
}

void backward(Ctx& ctx, const Var& objective) {
  WEFT_CHECK(ctx.tape && objective.slot, "backward: the objective was computed without a tape");
  WEFT_CHECK(objective.value.size() == 1, "backward: the objective must be the result of mean(), got ",
             shape_text(objective.value));
  objective.slot->written = true;  // with no gradient tensor: mean() takes step->loss_gradient for it
  ctx.tape->run_backward(ctx);
}

Var recompute(Ctx& ctx, const Block& block, const Var& x) {
  if (!ctx.tape) return block(ctx, x);
  const Ctx start = ctx;  // the number of the next dropout call, among others
  ctx.tape = nullptr;
  const Var y{block(ctx, Var{x.value, nullptr}).value, std::make_shared<GradSlot>()};
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
