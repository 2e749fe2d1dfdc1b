// SPDX-License-Identifier: MIT
// Schedules, the launches of an update, and dynamic loss scaling.
#include "src/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/adamw.h"
#include "kernels/reduce.h"

namespace weft {

double learning_rate(const TrainConfig& train, std::int64_t step) {
  if (step < train.warmup)
    return train.learning_rate * static_cast<double>(step + 1) / static_cast<double>(train.warmup);
  if (train.schedule == "constant") return train.learning_rate;
  // 0 at the end of the warm-up, 1 at the last step and after it.
  const auto decay_steps = static_cast<double>(std::max<std::int64_t>(train.steps - train.warmup, 1));
  const double progress = std::min(1.0, static_cast<double>(step + 1 - train.warmup) / decay_steps);
  double share = 0;
  if (train.schedule == "cosine") {
    share = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  } else if (train.schedule == "linear") {
    share = 1 - progress;
  } else {
    fail(str("train.schedule '", train.schedule, "': expected cosine, linear or constant"));
  }
  return train.learning_rate * (train.final_learning_rate + (1 - train.final_learning_rate) * share);
}

std::int64_t context_at(const TrainConfig& train, std::int64_t full_context, std::int64_t step) {
  std::int64_t context = full_context;
  for (const auto& [from, length] : train.context_schedule) {
    if (from <= step) context = length;
  }
  return context;
}

void update_parameters(Ctx& ctx, ParameterStore& store, const TrainConfig& train) {
  WEFT_CHECK(ctx.step && ctx.results, "update_parameters: ctx.step and ctx.results must be set");
  WEFT_CHECK(store.gradients(), "update_parameters: the store was allocated without training");
  ctx.launch(ClipCoefficient{
      .results = ctx.results, .gradients = store.gradients(), .step = ctx.step, .clip = train.clip});
  const bool own_master = store.compute_dtype() != wide(store.compute_dtype());
  for (const OwnPart& part : store.own_parts()) {
    const auto of = [&](const Tensor& block) { return block.slice(part.begin, {part.size}).view(); };
    const auto state = [&](const Tensor& block) { return block.slice(part.state, {part.size}).view(); };
    if (part.size == 0) continue;
    ctx.launch(AdamWUpdate{.master = of(store.master()),
                           .m = state(store.m()),
                           .v = state(store.v()),
                           .ema = store.ema() ? state(store.ema()) : TensorView{},
                           .compute = own_master ? of(store.compute()) : TensorView{},
                           .gradients = of(store.gradients()),
                           .decayed = std::clamp<std::int64_t>(store.decayed() - part.begin, 0, part.size),
                           .beta1 = train.beta1,
                           .beta2 = train.beta2,
                           .eps = train.eps,
                           .weight_decay = train.weight_decay,
                           .step = ctx.step,
                           .results = ctx.results});
  }
  store.share_weights();
}

bool LossScaler::update(float gradient_norm) {
  const bool finite = std::isfinite(gradient_norm);
  if (!enabled) return finite;
  if (!finite) {
    scale /= 2;
    good_steps = 0;
    WEFT_CHECK(scale >= 1,
               "the gradient is not finite at any loss scale down to 1: training has diverged; "
               "lower train.learning_rate, or use precision bf16");
    return false;
  }
  if (++good_steps >= window) {
    scale *= 2;
    good_steps = 0;
  }
  return true;
}

}  // namespace weft
