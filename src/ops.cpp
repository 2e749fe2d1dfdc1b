// SPDX-License-Identifier: MIT
// The comment at an op says what its closure keeps for the backward pass, besides weights.
#include "src/ops.h"

#include "kernels/layers/canon.h"
#include "kernels/layers/cross_entropy.h"
#include "kernels/layers/layernorm.h"
#include "kernels/layers/mix.h"
#include "kernels/layers/pointwise.h"
#include "kernels/linear/activation.h"
#include "kernels/linear/linear.h"
#include "kernels/optimizer/reduce.h"

#include <utility>

namespace weft {
namespace {
Shape with_last(Shape shape, int64_t last) {
  shape.back() = last;
  return shape;
}

bool drops(const Ctx& ctx, double p) { return ctx.training && p > 0; }

void check_vector(const char* op, const char* what, const Var& v, int64_t size, DType dtype) {
  WEFT_CHECK(v.value.view().rank == 1 && v.value.size() == size && v.dtype() == dtype, op, ": ",
             what, " must be (", size, ") of ", name_of(dtype), ", got ", shape_text(v.value),
             " of ", name_of(v.dtype()));
}

// Of a matmul x w^T.
void check_weight(const char* op, const Var& x, const Var& w) {
  const TensorView &vx = x.value, &vw = w.value;
  WEFT_CHECK(vw.rank == 2 && vw.cols() == vx.cols() && vw.dtype == vx.dtype, op, ": w must be (M, ",
             vx.cols(), ") of ", name_of(vx.dtype), " for x ", shape_text(vx), ", got ",
             shape_text(vw), " of ", name_of(vw.dtype));
}

void check_bias(const char* op, const Affine& x) {
  if (x.bias.value)
    check_vector(op, "the bias", x.bias, x.matmul.value.view().cols(), x.matmul.dtype());
}
}  // namespace

// Keeps x and each row's mean and rstd.
Var layernorm(Ctx& ctx, const Var& x, const Var& w, const Var& b, double eps) {
  const int64_t width = x.value.view().cols(), rows = x.value.view().rows();
  check_vector("layernorm", "w", w, width, wide(x.dtype()));
  check_vector("layernorm", "b", b, width, wide(x.dtype()));
  const Var y = ctx.output(x.shape(), x.dtype());
  const Tensor mean = ctx.empty({rows}, wide(x.dtype())), rstd = ctx.empty({rows}, wide(x.dtype()));
  ctx.launch(LayerNormForward{
      .y = y.value,
      .mean = mean,
      .rstd = rstd,
      .x = x.value,
      .w = w.value,
      .b = b.value,
      .eps = eps,
  });
  if (!ctx.tape) return y;
  ctx.tape->record("layernorm", y, [x, w, b, mean, rstd](Ctx& c, const Tensor& dy) {
    c.launch(LayerNormBackward{
        .dx = c.grad(x),
        .dw = c.grad(w),
        .db = c.grad(b),
        .dy = dy,
        .x = x.value,
        .mean = mean,
        .rstd = rstd,
        .w = w.value,
    });
  });
  return y;
}

// Keeps x.
Var canon(Ctx& ctx, const Var& x, const Var& w) {
  check_vector("canon", "w", w, kCanonTaps * x.value.view().cols(), wide(x.dtype()));
  const Var y = ctx.output(x.shape(), x.dtype());
  ctx.launch(CanonForward{.y = y.value, .x = x.value, .w = w.value});
  if (!ctx.tape) return y;
  ctx.tape->record("canon", y, [x, w](Ctx& c, const Tensor& dy) {
    c.launch(CanonBackward{
        .dx = c.grad(x),
        .dw = c.grad(w),
        .dy = dy,
        .x = x.value,
        .w = w.value,
    });
  });
  return y;
}

// Keeps all of x.
Var mix(Ctx& ctx, const std::vector<Var>& x, const std::vector<Var>& w) {
  WEFT_CHECK(!x.empty() && x.size() == w.size(), "mix: ", x.size(), " terms and ", w.size(),
             " weights");
  const auto views = [](const std::vector<Var>& all) {
    std::vector<TensorView> views;
    for (const Var& v : all) views.push_back(v.value);
    return views;
  };
  for (const Var& v : w) check_vector("mix", "w", v, x[0].value.view().cols(), wide(x[0].dtype()));
  const Var y = ctx.output(x[0].shape(), x[0].dtype());
  ctx.launch(MixForward{.y = y.value, .x = views(x), .w = views(w)});
  if (!ctx.tape) return y;
  ctx.tape->record("mix", y, [x, w, views](Ctx& c, const Tensor& dy) {
    MixBackward k{.dx = {}, .dw = {}, .dy = dy, .x = views(x), .w = views(w)};
    for (const Var& v : x) k.dx.push_back(c.grad(v));
    for (const Var& v : w) k.dw.push_back(c.grad(v));
    c.launch(k);
  });
  return y;
}

namespace {
// The gradients of x w^T + b, which may wait for x (Gradient::waiting).
void linear_backward(Ctx& c, const Var& x, const Var& w, const Var& b, const Tensor& dy) {
  const GradView dx = c.grad(x);
  if (x.value) {
    c.launch(LinearBackward{
        .dx = dx,
        .dw = c.grad(w),
        .db = c.grad(b),
        .dy = dy,
        .x = x.value,
        .w = w.value,
    });
    return;
  }
  c.launch(LinearBackward{.dx = dx, .dw = {}, .db = {}, .dy = dy, .x = x.value, .w = w.value});
  x.gradient->waiting.emplace_back([w, b, dy](Ctx& now, const Tensor& value) {
    now.launch(LinearBackward{
        .dx = {},
        .dw = now.grad(w),
        .db = now.grad(b),
        .dy = dy,
        .x = value,
        .w = w.value,
    });
  });
}
}  // namespace

// Keeps x, unless the op before recomputes it and b is there: a matmul whose bias is added
// elsewhere keeps x.
Var linear(Ctx& ctx, const Var& x, const Var& w, const Var& b) {
  check_weight("linear", x, w);
  if (b.value) check_vector("linear", "b", b, w.value.view().rows(), x.dtype());
  const Var y = ctx.output(with_last(x.shape(), w.value.view().rows()), x.dtype());
  ctx.launch(LinearForward{
      .y = y.value,
      .x = x.value,
      .w = w.value,
      .b = b.value,
      .batch_invariant = ctx.batch_invariant,
  });
  if (!ctx.tape) return y;
  ctx.tape->record("linear", y, [x = b.value ? x.kept() : x, w, b](Ctx& c, const Tensor& dy) {
    linear_backward(c, x, w, b, dy);
  });
  return y;
}

// Keeps x and the bias.
Var activation(Ctx& ctx, const Affine& x, Activation f) {
  const Var &matmul = x.matmul, &bias = x.bias;
  check_bias("activation", x);
  const Var y = ctx.output(matmul.shape(), matmul.dtype());
  ctx.launch(ActivationForward{.y = y.value, .x = matmul.value, .bias = bias.value, .f = f});
  if (!ctx.tape) return y;
  ctx.tape->record("activation", y, [matmul, bias, f](Ctx& c, const Tensor& dy) {
    c.launch(ActivationBackward{
        .dx = c.grad(matmul),
        .dy = dy,
        .x = matmul.value,
        .dbias = c.grad(bias),
        .bias = bias.value,
        .f = f,
    });
  });
  return y;
}

// Keeps x and h = x up^T. The kernel of the gradient of h recomputes the activation in the place of
// h.
Var mlp(Ctx& ctx, const Var& x, const Var& up, const Var& up_bias, const Var& down, Activation f) {
  check_weight("mlp", x, up);
  check_vector("mlp", "the bias", up_bias, up.value.view().rows(), x.dtype());
  WEFT_CHECK((down.shape() == Shape{x.value.view().cols(), up.value.view().rows()}) &&
                 down.dtype() == x.dtype(),
             "mlp: down must be (", x.value.view().cols(), ", ", up.value.view().rows(), ") of ",
             name_of(x.dtype()), ", got ", shape_text(down.value), " of ", name_of(down.dtype()));
  if (ctx.batch_invariant)
    return linear(ctx, activation(ctx, {linear(ctx, x, up, Var{}), up_bias}, f), down, Var{});
  const Shape wide_shape = with_last(x.shape(), up.value.view().rows());
  const Tensor h = ctx.tape ? ctx.empty(wide_shape, x.dtype()) : Tensor{};
  const Tensor hidden = ctx.empty(wide_shape, x.dtype());
  ctx.launch(LinearActivationForward{
      .y = hidden,
      .h = h,
      .x = x.value,
      .w = up.value,
      .b = up_bias.value,
      .f = f,
  });
  const Var y = ctx.output(x.shape(), x.dtype());
  ctx.launch(LinearForward{.y = y.value, .x = hidden, .w = down.value, .b = {}});
  if (!ctx.tape) return y;
  ctx.tape->record("mlp", y, [x, kept = h, up, up_bias, down, f](Ctx& c, const Tensor& dy) mutable {
    const Tensor dh = c.empty(kept.shape(), kept.dtype());
    {
      const Tensor h = std::exchange(kept, {});
      c.launch(LinearActivationBackward{
          .dh = dh,
          .y = h,
          .db = c.grad(up_bias),
          .dy = dy,
          .w = down.value,
          .h = h,
          .b = up_bias.value,
          .f = f,
      });
      c.launch(LinearBackward{
          .dx = {},
          .dw = c.grad(down),
          .db = {},
          .dy = dy,
          .x = h,
          .w = down.value,
      });
    }
    linear_backward(c, x, up, Var{}, dh);
  });
  return y;
}

// Keeps the number of the call alone: Philox draws the same dropout mask again.
Var dropout(Ctx& ctx, const Var& x, double p) {
  if (!drops(ctx, p)) return x;
  WEFT_CHECK(ctx.step, "dropout: ctx.step is not set");
  const uint32_t site = ctx.site++;
  const Var y = ctx.output(x.shape(), x.dtype());
  ctx.launch(Dropout{.y = {y.value}, .x = x.value, .p = p, .site = site, .step = ctx.step});
  if (!ctx.tape) return y;
  ctx.tape->record("dropout", y, [x = x.without_value(), p, site](Ctx& c, const Tensor& dy) {
    c.launch(Dropout{.y = c.grad(x), .x = dy, .p = p, .site = site, .step = c.step});
  });
  return y;
}

namespace {
// The dropout of a branch: what of it a closure keeps.
struct BranchDropout {
  double p = 0;
  uint32_t site = 0;
};

BranchDropout checked_branch(const char* op, Ctx& ctx, const Var& x, const Affine& branch,
                             double p) {
  const Var& y = branch.matmul;
  WEFT_CHECK(x.shape() == y.shape() && x.dtype() == y.dtype(), op,
             ": both must have one shape and type, got ", shape_text(x.value), " of ",
             name_of(x.dtype()), " and ", shape_text(y.value), " of ", name_of(y.dtype()));
  check_bias(op, branch);
  if (!drops(ctx, p)) return {};
  WEFT_CHECK(ctx.step, op, ": ctx.step is not set");
  return {p, ctx.site++};
}

// What both residual ops launch; the norm is added to it where there is one.
ResidualForward residual_forward(const Ctx& ctx, const Var& x, const Affine& branch,
                                 BranchDropout drop, const Var& sum) {
  ResidualForward k{};
  k.h = sum.value, k.x = x.value, k.branch = branch.matmul.value, k.bias = branch.bias.value;
  k.p = drop.p, k.site = drop.site, k.step = ctx.step;
  return k;
}

ResidualBackward residual_backward(const Ctx& ctx, BranchDropout drop, const Tensor& dh) {
  ResidualBackward k{};
  k.dh = dh, k.p = drop.p, k.site = drop.site, k.step = ctx.step;
  return k;
}
}  // namespace

// Keeps the number of the call alone. x gets the buffer of dy itself, the branch one of its own.
Var residual_dropout(Ctx& ctx, const Var& x, const Affine& branch, double p) {
  const BranchDropout drop = checked_branch("residual_dropout", ctx, x, branch, p);
  const Var y = ctx.output(x.shape(), x.dtype());
  ctx.launch(residual_forward(ctx, x, branch, drop, y));
  if (!ctx.tape) return y;
  ctx.tape->record("residual_dropout", y,
                   [x = x.without_value(), matmul = branch.matmul.without_value(),
                    bias = branch.bias.without_value(), drop](Ctx& c, const Tensor& dy) {
                     ResidualBackward k = residual_backward(c, drop, dy);
                     k.dbranch = c.grad(matmul), k.dbias = c.grad(bias);
                     c.launch(k);
                     c.pass_gradient(x, dy);
                   });
  return y;
}

// Keeps the sum, each row's mean and rstd, and the number of the call. If a later op waits for the
// norm, the kernel of the gradient recomputes it in the place of the sum.
SumAndNorm residual_layernorm(Ctx& ctx, const Var& x, const Affine& branch, double p, const Var& w,
                              const Var& b, double eps) {
  const int64_t width = x.value.view().cols(), rows = x.value.view().rows();
  check_vector("residual_layernorm", "w", w, width, wide(x.dtype()));
  check_vector("residual_layernorm", "b", b, width, wide(x.dtype()));
  const BranchDropout drop = checked_branch("residual_layernorm", ctx, x, branch, p);
  const SumAndNorm y{ctx.output(x.shape(), x.dtype()), ctx.output(x.shape(), x.dtype())};
  const Tensor mean = ctx.empty({rows}, wide(x.dtype())), rstd = ctx.empty({rows}, wide(x.dtype()));
  ResidualForward forward = residual_forward(ctx, x, branch, drop, y.sum);
  forward.y = y.norm.value, forward.mean = mean, forward.rstd = rstd;
  forward.w = w.value, forward.b = b.value, forward.eps = eps;
  ctx.launch(forward);
  if (!ctx.tape) return y;
  y.norm.gradient->recomputed = true;
  const auto backward = [x = x.without_value(), matmul = branch.matmul.without_value(),
                         bias = branch.bias.without_value(), norm = y.norm.without_value(),
                         h = y.sum.value, mean, rstd, w, b,
                         drop](Ctx& c, const Tensor& dh, const Tensor& dy) {
    const auto waiting = std::exchange(norm.gradient->waiting, {});
    const Tensor again = waiting.empty() ? Tensor{} : h;
    const GradView dx = dy ? c.grad(x) : GradView{};
    // Without dropout x and the branch have one gradient, and one buffer for it.
    const bool same = drop.p == 0 && dx && !dx.accumulate && x.gradient != matmul.gradient;
    ResidualBackward k = residual_backward(c, drop, dh);
    k.dx = dx, k.dbranch = same ? GradView{} : c.grad(matmul), k.dbias = c.grad(bias);
    if (dy) k.dw = c.grad(w), k.db = c.grad(b);
    k.y = again, k.dy = dy, k.h = h, k.mean = mean, k.rstd = rstd, k.w = w.value;
    if (again) k.b = b.value;
    c.launch(k);
    for (const auto& use : waiting) use(c, again);
    if (same) c.pass_gradient(matmul, x.gradient->tensor);
    if (!dy) c.pass_gradient(x, dh);
  };
  ctx.tape->record("residual_layernorm", y.sum, y.norm, backward);
  return y;
}

// Keeps the logits, each row's log-sum-exp and the targets.
Var cross_entropy(Ctx& ctx, const Var& logits, const Tensor& targets) {
  Shape rows = logits.shape();
  rows.pop_back();
  WEFT_CHECK(rows == targets.shape() && targets.dtype() == DType::i32,
             "cross_entropy: targets must be i32 of the shape of ", shape_text(logits.value),
             " without its last axis, got ", shape_text(targets), " of ", name_of(targets.dtype()));
  const Var loss = ctx.output(rows, wide(logits.dtype()));
  const Tensor lse = ctx.empty(rows, wide(logits.dtype()));
  ctx.launch(CrossEntropyForward{
      .loss = loss.value,
      .lse = lse,
      .logits = logits.value,
      .targets = targets,
  });
  if (!ctx.tape) return loss;
  ctx.tape->record("cross_entropy", loss, [logits, lse, targets](Ctx& c, const Tensor& dloss) {
    c.launch(CrossEntropyBackward{
        .dlogits = c.grad(logits),
        .dloss = dloss,
        .lse = lse,
        .logits = logits.value,
        .targets = targets,
    });
  });
  return loss;
}

// Keeps nothing. Its gradient is a number of the step (see backward()), or a tensor when more ops
// follow.
Var mean(Ctx& ctx, const Var& x) {
  const Var y = ctx.output({1}, x.dtype());
  ctx.launch(MeanForward{.y = y.value, .x = x.value, .results = ctx.results});
  if (!ctx.tape) return y;
  ctx.tape->record("mean", y, [x = x.without_value()](Ctx& c, const Tensor& dy) {
    WEFT_CHECK(dy || c.step, "mean: ctx.step is not set");
    c.launch(MeanBackward{.dx = c.grad(x), .dy = dy, .step = c.step});
  });
  return y;
}
}  // namespace weft
