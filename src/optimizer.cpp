// SPDX-License-Identifier: MIT
#include "src/optimizer.h"

#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/muon.h"
#include "kernels/optimizer/reduce.h"
#include "src/config/config.h"

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

namespace {
TensorView ema_of(const ParameterStore& store, const OwnPart& part) {
  return store.ema() ? store.slice_of(store.ema(), part).view() : TensorView{};
}

TensorView compute_of(const ParameterStore& store, const OwnPart& part) {
  const bool own_master = store.compute_dtype() != wide(store.compute_dtype());
  return own_master ? store.slice_of(store.compute(), part).view() : TensorView{};
}

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

MuonBlocks muon_blocks(const ParameterStore& store) {
  std::vector<MuonMatrix> all;
  for (const ParamInfo& p : store.params())
    if (p.kind == ParamKind::muon)
      all.push_back({p.offset - store.muon().begin, p.shape[0], p.shape[1]});
  // Matrix i + n is matrix i of the next block.
  const auto repeats = [&](std::size_t n, int64_t period) {
    for (std::size_t i = 0; i + n < all.size(); ++i)
      if (MuonMatrix moved = all[i]; moved.offset += period, moved != all[i + n]) return false;
    return true;
  };
  for (std::size_t n = 1; n <= all.size(); ++n) {
    const auto count = static_cast<int64_t>(all.size() / n);
    const int64_t period = store.muon().size() / count;
    if (all.size() % n != 0 || !repeats(n, period)) continue;
    all.resize(n);
    return {count, period, all};
  }
  return {};
}

void muon_momentum(Ctx& ctx, const ParameterStore& store, const OwnPart& part, const Tensor& u) {
  ctx.launch(MuonMomentum{
      .u = u,
      .m = store.slice_of(store.m(), part),
      .gradients = store.slice_of(store.gradients(), part),
      .step = ctx.step,
      .results = ctx.results,
  });
}

void orthogonalise(Ctx& ctx, const MuonBlocks& blocks, const Tensor& x) {
  NewtonSchulz k{.x = x, .matrices = blocks.matrices, .other = {}, .squares = {}};
  const Tensor other = ctx.empty(x.shape(), x.dtype(), "optimizer"),
               squares = ctx.empty({2, k.square_elements()}, x.dtype(), "optimizer");
  k.other = other, k.squares = squares;
  ctx.launch(k);
}

namespace {
// o of all of store.muon().
Tensor muon_directions(Ctx& ctx, const ParameterStore& store) {
  const GradientRange muon = store.muon();
  const Tensor u = ctx.empty({muon.size()}, muon_dtype(store.compute_dtype()), "optimizer");
  muon_momentum(ctx, store, within(store.own_parts()[0], muon.begin, muon.end), u);
  const MuonBlocks blocks = muon_blocks(store);
  orthogonalise(ctx, blocks, u.slice(0, {blocks.count, blocks.period}));
  return u;
}

void muon(Ctx& ctx, const ParameterStore& store, const TrainConfig& train, const OwnPart& part,
          const Tensor& o) {
  if (part.size == 0) return;
  ctx.launch(MuonUpdate{
      .master = store.slice_of(store.master(), part),
      .ema = ema_of(store, part),
      .compute = compute_of(store, part),
      .o = o.slice(part.begin - store.muon().begin, {part.size}),
      .weight_decay = train.muon_weight_decay,
      .step = ctx.step,
      .results = ctx.results,
  });
}
}  // namespace

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
  const GradientRange of_muon = store.muon();
  adamw(ctx, store, train, within(part, 0, of_muon.begin));
  muon(ctx, store, train, within(part, of_muon.begin, of_muon.end), o);
  adamw(ctx, store, train, within(part, of_muon.end, store.gradients().size()));
}

void update_parameters(Ctx& ctx, ParameterStore& store, const TrainConfig& train) {
  WEFT_CHECK(!store.sharing(), "update_parameters: this process has a share of the store alone");
  prepare_update(ctx, store, train);
  const Tensor o = store.muon().size() > 0 ? muon_directions(ctx, store) : Tensor();
  update_part(ctx, store, train, store.own_parts()[0], o);
}
}  // namespace weft
