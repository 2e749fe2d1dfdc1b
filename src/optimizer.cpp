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
// Each rank sums the squares of its parts of the gradients. All ranks add the same f64 sums in one
// order.
Tensor gather_squares(Ctx& ctx, const ParameterStore& store, Communicator& communicator) {
  const std::vector<OwnPart> parts = store.own_parts();
  const std::size_t shards = store.shards().size();
  const auto launches = static_cast<int64_t>((shards + SquareSum::kMost - 1) / SquareSum::kMost),
             all = launches * communicator.size();
  const Tensor squares = ctx.empty({all + 1}, DType::f64, "norm");
  const auto sum = [&](std::size_t first, std::size_t end, int64_t at) {
    SquareSum k{.y = squares.slice(at, {1}), .xs = {}};
    for (std::size_t i = first; i < end; ++i)
      k.xs.push_back(store.slice_of(store.gradients(), parts[i]));
    ctx.launch(k);
  };
  for (int64_t i = 0; i < launches; ++i) {
    const std::size_t first = static_cast<std::size_t>(i) * SquareSum::kMost;
    sum(first, std::min(first + SquareSum::kMost, shards), communicator.rank() * launches + i);
  }
  sum(shards, shards + 1, all);  // what every rank has
  communicator.all_gather(squares.slice(0, {all}));
  return squares;
}

void clip(Ctx& ctx, const ParameterStore& store, const TrainConfig& train,
          Communicator* communicator) {
  ClipCoefficient clip{.results = ctx.results, .step = ctx.step, .clip = train.clip};
  const Tensor squares =
      store.shards().empty() ? Tensor() : gather_squares(ctx, store, *communicator);
  (squares ? clip.squares : clip.gradients) = squares ? squares : store.gradients();
  ctx.launch(clip);
}

// What of a part lies in [begin, end).
OwnPart within(const OwnPart& part, int64_t begin, int64_t end) {
  begin = std::max(begin, part.begin);
  return {begin, std::max<int64_t>(std::min(end, part.begin + part.size) - begin, 0),
          part.state + begin - part.begin};
}

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

// The elements of store.muon(): `count` times the same matrices, each time `period` elements on.
struct MuonBlocks {
  int64_t count = 0, period = 0;
  std::vector<MuonMatrix> matrices;
};

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

// o of all of store.muon(). Each rank computes u of its own parts and orthogonalises a share of the
// blocks.
Tensor muon_directions(Ctx& ctx, const ParameterStore& store, Communicator* communicator) {
  const GradientRange muon = store.muon();
  std::vector<GradientRange> cut;  // the shards that hold some of it
  for (const GradientRange& s : store.shards())
    if (s.begin < muon.end && s.end > muon.begin) cut.push_back(s);
  const MuonBlocks blocks = muon_blocks(store);
  const int64_t ranks = communicator ? communicator->size() : 1,
                rank = ranks > 1 ? communicator->rank() : 0;
  const int64_t share = (blocks.count + ranks - 1) / ranks, all = ranks * share * blocks.period;
  const int64_t begin = cut.empty() ? muon.begin : std::min(muon.begin, cut.front().begin),
                end = std::max(muon.begin + all, cut.empty() ? 0 : cut.back().end);
  const DType type = muon_dtype(store.compute_dtype());
  const Tensor u = ctx.empty({end - begin}, type, "optimizer");
  for (const OwnPart& own : store.own_parts())
    if (const OwnPart part = within(own, muon.begin, muon.end); part.size > 0)
      ctx.launch(MuonMomentum{
          .u = u.slice(part.begin - begin, {part.size}),
          .m = store.slice_of(store.m(), part),
          .gradients = store.slice_of(store.gradients(), part),
          .step = ctx.step,
          .results = ctx.results,
      });
  for (const GradientRange& s : cut) communicator->all_gather(u.slice(s.begin - begin, {s.size()}));
  const int64_t own = std::clamp<int64_t>(blocks.count - rank * share, 0, share);
  if (own > 0) {
    NewtonSchulz k{
        .x = u.slice(muon.begin - begin + rank * share * blocks.period, {own, blocks.period}),
        .matrices = blocks.matrices,
        .other = {},
        .squares = {},
    };
    const Tensor other = ctx.empty({own, blocks.period}, type, "optimizer"),
                 squares = ctx.empty({2, k.square_elements()}, type, "optimizer");
    k.other = other, k.squares = squares;
    ctx.launch(k);
  }
  if (ranks > 1) communicator->all_gather(u.slice(muon.begin - begin, {all}));
  return u.slice(muon.begin - begin, {muon.size()});
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

void update_parameters(Ctx& ctx, ParameterStore& store, const TrainConfig& train,
                       Communicator* communicator) {
  WEFT_CHECK(ctx.step && ctx.results, "update_parameters: ctx.step and ctx.results must be set");
  WEFT_CHECK(store.gradients(), "update_parameters: the store was allocated without training");
  const std::size_t shards = store.shards().size();
  WEFT_CHECK(shards == 0 || communicator,
             "update_parameters: a store with shards needs a communicator");
  clip(ctx, store, train, communicator);
  if (ctx.loss_scale)
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
  const std::vector<OwnPart> parts = store.own_parts();
  const GradientRange of_muon = store.muon();
  const Tensor o = of_muon.size() > 0 ? muon_directions(ctx, store, communicator) : Tensor();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    adamw(ctx, store, train, within(parts[i], 0, of_muon.begin));
    muon(ctx, store, train, within(parts[i], of_muon.begin, of_muon.end), o);
    adamw(ctx, store, train, within(parts[i], of_muon.end, store.gradients().size()));
    if (i == shards) continue;
    communicator->fork();  // the all-gather overlaps the update of the next part
    communicator->all_gather(
        store.compute().slice(store.shards()[i].begin, {store.shards()[i].size()}));
  }
  if (shards > 0) communicator->join();
}
}  // namespace weft
