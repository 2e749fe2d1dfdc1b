// SPDX-License-Identifier: MIT
#include "src/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/loss_scale.h"
#include "kernels/optimizer/reduce.h"

namespace weft {

double learning_rate(const TrainConfig& train, std::int64_t step) {
  if (step < train.warmup)
    return train.learning_rate * static_cast<double>(step + 1) / static_cast<double>(train.warmup);
  if (train.schedule == "constant") return train.learning_rate;
  // 0 at the end of the warm-up, 1 at the last step and after it.
  const auto decay_steps = static_cast<double>(std::max<std::int64_t>(train.steps - train.warmup, 1));
  const double progress = std::min(1.0, static_cast<double>(step + 1 - train.warmup) / decay_steps);
  const bool cosine = train.schedule == "cosine";
  if (!cosine && train.schedule != "linear")
    fail(str("train.schedule '", train.schedule, "': expected cosine, linear or constant"));
  const double share = cosine ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return train.learning_rate * (train.final_learning_rate + (1 - train.final_learning_rate) * share);
}

std::int64_t context_at(const TrainConfig& train, std::int64_t full_context, std::int64_t step) {
  std::int64_t context = full_context;
  for (const auto& [from, length] : train.context_schedule)
    if (from <= step) context = length;
  return context;
}

namespace {

// Each rank sums the squares of its parts of the gradients. All ranks add the same f64 sums in one order.
Tensor gather_squares(Ctx& ctx, const ParameterStore& store, Communicator& communicator) {
  const std::vector<OwnPart> parts = store.own_parts();
  const std::size_t shards = store.shards().size();
  const auto launches = static_cast<std::int64_t>((shards + SquareSum::kMost - 1) / SquareSum::kMost),
             all = launches * communicator.size();
  const Tensor squares = ctx.empty({all + 1}, DType::f64, "norm");
  const auto sum = [&](std::size_t first, std::size_t end, std::int64_t at) {
    SquareSum k{.y = squares.slice(at, {1}), .xs = {}};
    for (std::size_t i = first; i < end; ++i) k.xs.push_back(store.slice_of(store.gradients(), parts[i]));
    ctx.launch(k);
  };
  for (std::int64_t i = 0; i < launches; ++i) {
    const std::size_t first = static_cast<std::size_t>(i) * SquareSum::kMost;
    sum(first, std::min(first + SquareSum::kMost, shards), communicator.rank() * launches + i);
  }
  sum(shards, shards + 1, all);  // what every rank has
  communicator.all_gather(squares.slice(0, {all}));
  return squares;
}

void clip(Ctx& ctx, const ParameterStore& store, const TrainConfig& train, Communicator* communicator) {
  ClipCoefficient clip{.results = ctx.results, .step = ctx.step, .clip = train.clip};
  const Tensor squares = store.shards().empty() ? Tensor() : gather_squares(ctx, store, *communicator);
  (squares ? clip.squares : clip.gradients) = squares ? squares : store.gradients();
  ctx.launch(clip);
}

void adamw(Ctx& ctx, const ParameterStore& store, const TrainConfig& train, const OwnPart& part) {
  if (part.size == 0) return;
  const auto of = [&](const Tensor& block) { return store.slice_of(block, part); };
  const bool own_master = store.compute_dtype() != wide(store.compute_dtype());
  ctx.launch(AdamWUpdate{.master = of(store.master()),
                         .m = of(store.m()),
                         .v = of(store.v()),
                         .ema = store.ema() ? of(store.ema()).view() : TensorView{},
                         .compute = own_master ? of(store.compute()).view() : TensorView{},
                         .gradients = of(store.gradients()),
                         .decayed = std::clamp<std::int64_t>(store.decayed() - part.begin, 0, part.size),
                         .beta1 = train.beta1,
                         .beta2 = train.beta2,
                         .eps = train.eps,
                         .weight_decay = train.weight_decay,
                         .step = ctx.step,
                         .results = ctx.results});
}

}  // namespace

void update_parameters(Ctx& ctx, ParameterStore& store, const TrainConfig& train,
                       Communicator* communicator) {
  WEFT_CHECK(ctx.step && ctx.results, "update_parameters: ctx.step and ctx.results must be set");
  WEFT_CHECK(store.gradients(), "update_parameters: the store was allocated without training");
  const std::size_t shards = store.shards().size();
  WEFT_CHECK(shards == 0 || communicator, "update_parameters: a store with shards needs a communicator");
  clip(ctx, store, train, communicator);
  if (ctx.loss_scale)
    ctx.launch(UpdateLossScale{.state = ctx.loss_scale,
                               .results = ctx.results,
                               .step = ctx.step,
                               .window = train.loss_scale_window,
                               .beta1 = train.beta1,
                               .beta2 = train.beta2,
                               .ema_decay = train.ema_decay});
  const std::vector<OwnPart> parts = store.own_parts();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    adamw(ctx, store, train, parts[i]);
    if (i == shards) continue;
    communicator->fork();  // the all-gather overlaps the update of the next part
    communicator->all_gather(store.compute().slice(store.shards()[i].begin, {store.shards()[i].size()}));
  }
  if (shards > 0) communicator->join();
}

}  // namespace weft
