// SPDX-License-Identifier: MIT
#include "src/optimizer/optimizer.h"

#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/reduce.h"
#include "src/config/config.h"
#include "src/parts/parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace weft {
double learning_rate(const TrainConfig& train, int64_t step) {
  if (step < train.warmup)
    return train.learning_rate * static_cast<double>(step + 1) / static_cast<double>(train.warmup);
  if (train.schedule == Schedule::constant) return train.learning_rate;
  // 0 at the end of the warm-up, 1 at the last step and after it.
  const auto decay_steps = static_cast<double>(std::max<int64_t>(train.steps - train.warmup, 1));
  const double progress = std::min(1.0, static_cast<double>(step + 1 - train.warmup) / decay_steps);
  const double share = train.schedule == Schedule::cosine
                           ? 0.5 * (1 + std::cos(std::numbers::pi * progress))
                           : 1 - progress;
  return train.learning_rate *
         (train.final_learning_rate + (1 - train.final_learning_rate) * share);
}

int64_t context_at(const TrainConfig& train, int64_t full_context, int64_t step) {
  int64_t context = full_context;
  for (const auto& [from, length] : train.context_schedule)
    if (from <= step) context = length;
  return context;
}

TensorView ema_of(const ParameterStore& store, const OwnPart& part) {
  return store.ema() ? store.slice_of(store.ema(), part).view() : TensorView{};
}

TensorView compute_of(const ParameterStore& store, const OwnPart& part) {
  const bool own_master = store.compute_dtype() != wide(store.compute_dtype());
  return own_master ? store.slice_of(store.compute(), part).view() : TensorView{};
}

namespace {
void adamw(Ctx& ctx, const ParameterStore& store, const TrainConfig& train, const OwnPart& part) {
  if (part.size == 0) return;
  ctx.launch(AdamWUpdate{
      .master = store.slice_of(store.master(), part),
      .m = store.slice_of(store.m(), part),
      .v = store.slice_of(store.v(), part),
      .ema = ema_of(store, part),
      .compute = compute_of(store, part),
      .gradients = store.slice_of(store.gradients(), part),
      .decayed = std::clamp<int64_t>(store.decayed() - part.begin, 0, part.size),
      .beta1 = train.beta1,
      .beta2 = train.beta2,
      .eps = train.eps,
      .weight_decay = train.weight_decay,
      .step = ctx.step,
      .results = ctx.results,
  });
}
}  // namespace

OwnPart within(const OwnPart& part, int64_t begin, int64_t end) {
  begin = std::max(begin, part.begin);
  return {begin, std::max<int64_t>(std::min(end, part.begin + part.size) - begin, 0),
          part.state + begin - part.begin};
}

namespace {
std::vector<MatrixOptimizer>& matrix_optimizers() {
  static std::vector<MatrixOptimizer> table;
  return table;
}

// o of all of store.matrices().
Tensor directions(Ctx& ctx, const ParameterStore& store, const TrainConfig& train) {
  const MatrixOptimizer& optimizer = matrix_optimizer(train);
  const GradientRange range = store.matrices();
  const Tensor u = ctx.empty({range.size()}, optimizer.dtype(store.compute_dtype()), "optimizer");
  optimizer.momentum(ctx, store, within(store.own_parts()[0], range.begin, range.end), u);
  const int64_t blocks = optimizer.blocks(store);
  optimizer.directions(ctx, store, u.slice(0, {blocks, range.size() / blocks}));
  optimizer.normalise(ctx, store, u, {});
  return u;
}
}  // namespace

void add_matrix_optimizer(const MatrixOptimizer& optimizer) {
  matrix_optimizers().push_back(optimizer);
}

const MatrixOptimizer& matrix_optimizer(const TrainConfig& train) {
  register_parts();
  const auto at = std::ranges::find(matrix_optimizers(), train.optimizer, &MatrixOptimizer::kind);
  WEFT_CHECK(at != matrix_optimizers().end(),
             "train.optimizer: expected an optimizer of matrices that this build has");
  return *at;
}

void prepare_update(Ctx& ctx, const ParameterStore& store, const TrainConfig& train,
                    const Tensor& squares) {
  WEFT_CHECK(ctx.step && ctx.results, "update_parameters: ctx.step and ctx.results must be set");
  WEFT_CHECK(store.gradients(), "update_parameters: the store was allocated without training");
  ClipCoefficient clip{.results = ctx.results, .step = ctx.step, .clip = train.clip};
  (squares ? clip.squares : clip.gradients) = squares ? squares : store.gradients();
  ctx.launch(clip);
  if (!ctx.loss_scale) return;
  ctx.launch(UpdateLossScale{
      .state = ctx.loss_scale,
      .results = ctx.results,
      .step = ctx.step,
      .window = train.loss_scale_window,
      .beta1 = train.beta1,
      .beta2 = train.beta2,
      .ema_decay = train.ema_decay,
      .momentum = train.muon_momentum,
  });
}

void update_part(Ctx& ctx, const ParameterStore& store, const TrainConfig& train,
                 const OwnPart& part, const Tensor& o) {
  const GradientRange range = store.matrices();
  adamw(ctx, store, train, within(part, 0, range.begin));
  if (const OwnPart own = within(part, range.begin, range.end); own.size > 0)
    matrix_optimizer(train).update(ctx, store, train, own,
                                   o.slice(own.begin - range.begin, {own.size}));
  adamw(ctx, store, train, within(part, range.end, store.gradients().size()));
}

void update_parameters(Ctx& ctx, ParameterStore& store, const TrainConfig& train) {
  WEFT_CHECK(!store.sharing(), "update_parameters: this process has a share of the store alone");
  prepare_update(ctx, store, train);
  const Tensor o = store.matrices().size() > 0 ? directions(ctx, store, train) : Tensor();
  update_part(ctx, store, train, store.own_parts()[0], o);
}
}  // namespace weft
