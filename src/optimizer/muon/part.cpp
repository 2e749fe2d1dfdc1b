// SPDX-License-Identifier: MIT
// The part muon: train.optimizer muon, for the matrices of the residual blocks.
#include "kernels/optimizer/muon/muon.h"
#include "src/config/config.h"
#include "src/optimizer/optimizer.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace weft {
namespace {
// store.matrices() as `count` blocks of the same matrices.
struct MuonBlocks {
  int64_t count = 0;
  std::vector<MuonMatrix> matrices;
};

MuonBlocks muon_blocks(const ParameterStore& store) {
  std::vector<MuonMatrix> all;
  for (const ParamInfo& p : store.params())
    if (p.kind == ParamKind::matrix)
      all.push_back({p.offset - store.matrices().begin, p.shape[0], p.shape[1]});
  // Matrix i + n is matrix i of the next block.
  const auto repeats = [&](std::size_t n, int64_t period) {
    for (std::size_t i = 0; i + n < all.size(); ++i)
      if (MuonMatrix moved = all[i]; moved.offset += period, moved != all[i + n]) return false;
    return true;
  };
  for (std::size_t n = 1; n <= all.size(); ++n) {
    const auto count = static_cast<int64_t>(all.size() / n);
    if (all.size() % n != 0 || !repeats(n, store.matrices().size() / count)) continue;
    all.resize(n);
    return {count, all};
  }
  return {};
}

int64_t count_blocks(const ParameterStore& store) { return muon_blocks(store).count; }

void momentum(Ctx& ctx, const ParameterStore& store, const OwnPart& part, const Tensor& u) {
  ctx.launch(MuonMomentum{
      .u = u,
      .m = store.slice_of(store.m(), part),
      .gradients = store.slice_of(store.gradients(), part),
      .step = ctx.step,
      .results = ctx.results,
  });
}

void directions(Ctx& ctx, const ParameterStore& store, const Tensor& x) {
  NewtonSchulz k{.x = x, .matrices = muon_blocks(store).matrices, .other = {}, .squares = {}};
  const Tensor other = ctx.empty(x.shape(), x.dtype(), "optimizer"),
               squares = ctx.empty({2, k.square_elements()}, x.dtype(), "optimizer");
  k.other = other, k.squares = squares;
  ctx.launch(k);
}

void update(Ctx& ctx, const ParameterStore& store, const TrainConfig& train, const OwnPart& part,
            const Tensor& o) {
  ctx.launch(MuonUpdate{
      .master = store.slice_of(store.master(), part),
      .ema = ema_of(store, part),
      .compute = compute_of(store, part),
      .o = o,
      .weight_decay = train.muon_weight_decay,
      .step = ctx.step,
      .results = ctx.results,
  });
}

// u of a share of the layers, what NewtonSchulz multiplies it with, and o of those of all ranks.
int64_t bytes(const Config& config, std::span<const ParamInfo> params) {
  int64_t elements = 0, squares = 0;
  for (const ParamInfo& p : params) {
    if (p.kind != ParamKind::matrix) continue;
    const int64_t side = std::min(p.shape[0], p.shape[1]);
    elements += p.size;
    squares += side * side;
  }
  const int64_t layers = config.model.layers, share = (layers + config.ranks - 1) / config.ranks;
  return size_of(muon_dtype(config.precision)) *
         (elements * config.ranks + elements + 2 * squares) * share / layers;
}
}  // namespace

void register_muon() {
  add_matrix_optimizer({
      .kind = Optimizer::muon,
      .dtype = muon_dtype,
      .blocks = count_blocks,
      .momentum = momentum,
      .directions = directions,
      .update = update,
      .bytes = bytes,
  });
}
}  // namespace weft
