// SPDX-License-Identifier: MIT
#include "src/ranks/sharding.h"

#include "kernels/layers/pointwise.h"
#include "kernels/optimizer/reduce.h"
#include "src/config/config.h"
#include "src/optimizer/optimizer.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {
namespace {
// Whether each parameter starts a range, decided in the order of backward passes: last first.
std::vector<bool> starts_of_ranges(std::span<const ParamInfo> params, int64_t least) {
  int64_t left = 0, size = 0;
  for (const ParamInfo& p : params) left += p.decay ? aligned(p.size) : 0;
  std::vector<bool> starts(params.size());
  for (std::size_t i = params.size(); i-- > 0;) {
    if (!params[i].decay) continue;
    size += aligned(params[i].size);
    left -= aligned(params[i].size);
    starts[i] = left == 0 || enough(size, left, least);
    if (starts[i]) size = 0;
  }
  return starts;
}
}  // namespace

std::shared_ptr<Sharding> Sharding::make(Communicator* communicator, int64_t least) {
  if (!communicator || communicator->size() == 1) return nullptr;
  return std::make_shared<Sharding>(*communicator, least);
}

int64_t Sharding::end_range(int64_t offset) {
  if (shards_.empty()) return offset;
  return shards_.back().end = aligned(offset, unit());
}

int64_t Sharding::begin_parameter(std::span<const ParamInfo> params, std::size_t i,
                                  int64_t offset) {
  if (starts_.empty()) starts_ = starts_of_ranges(params, least_);
  if (!starts_[i]) return offset;
  offset = end_range(offset);
  shards_.push_back({offset, offset});
  return offset;
}

std::vector<OwnPart> Sharding::own_parts(int64_t size) const {
  std::vector<OwnPart> parts;
  int64_t begin = 0, state = 0;
  for (const GradientRange& range : shards_) {
    const int64_t piece = range.size() / communicator_.size();
    parts.push_back({range.begin + communicator_.rank() * piece, piece, state});
    begin = range.end;
    state += piece;
  }
  parts.push_back({begin, size - begin, state});
  return parts;
}

void Sharding::gather(const Tensor& block) const {
  for (const GradientRange& range : shards_)
    communicator_.all_gather(block.slice(range.begin, {range.size()}));
}

void Sharding::visit(const ParameterStore& store, const Tensor& block, const Visit& visit) const {
  const std::vector<OwnPart> parts = store.own_parts();
  std::size_t ranges = 0;  // gathered so far
  Tensor whole;            // the last of them
  WEFT_CHECK(store.gradients(), "what processes share is gathered in the block of gradients");
  for (const ParamInfo& p : store.params()) {
    if (!p.decay) {
      visit(p, block.slice(parts.back().state + p.offset - store.decayed(), p.shape));
      continue;
    }
    if (ranges == 0 || p.offset >= shards_[ranges - 1].end) {
      const OwnPart& own = parts[ranges];
      whole = store.gradients().slice(shards_[ranges].begin, {shards_[ranges].size()});
      launch(store.device().queue,
             Add{.out = {store.slice_of(store.gradients(), own)}, .x = store.slice_of(block, own)});
      communicator_.all_gather(whole);
      ++ranges;
    }
    visit(p, whole.slice(p.offset - shards_[ranges - 1].begin, p.shape));
  }
}

std::string Sharding::text(const ParameterStore& store) const {
  return str(bytes_text(store.state_bytes()), " of state, shared by ", communicator_.size(),
             " processes (ZeRO-1): whole ", bytes_text(whole_state_bytes(store)));
}

std::span<const GradientRange> shards_of(const ParameterStore& store) {
  const auto* sharding = dynamic_cast<const Sharding*>(store.sharing());
  return sharding ? sharding->shards() : std::span<const GradientRange>{};
}

int64_t whole_state_bytes(const ParameterStore& store) {
  const OwnPart last = store.own_parts().back();
  return store.state_bytes() / (last.state + last.size) * (last.begin + last.size);
}

std::vector<TensorView> replicated(const ParameterStore& store) {
  if (store.has_whole(store.master())) return {store.master()};
  return {store.compute(), store.slice_of(store.master(), store.own_parts().back())};
}

// ---- the update ----

namespace {
// Each rank sums the squares of its parts of the gradients. All ranks add the same f64 sums in one
// order.
Tensor gather_squares(Ctx& ctx, const ParameterStore& store, Communicator& communicator) {
  const std::vector<OwnPart> parts = store.own_parts();
  const std::size_t shards = shards_of(store).size();
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

// Every rank gets o of all matrices, and makes rows of it equally long. Moments of rows in v that
// ranks share are summed: all but one rank have zero.
void normalise(Ctx& ctx, const ParameterStore& store, const MatrixOptimizer& optimizer,
               const Tensor& o, Communicator& communicator) {
  if (store.has_whole(store.v())) return optimizer.normalise(ctx, store, o, {});
  const GradientRange matrices = store.matrices();
  const Tensor moments = ctx.empty({optimizer.moments(store)}, store.v().dtype(), "optimizer");
  const auto move = [&](bool back) {
    for (const OwnPart& own : store.own_parts())
      if (const OwnPart part = within(own, matrices.begin, matrices.end); part.size > 0)
        optimizer.move_moments(ctx, store, part, moments, back);
  };
  store.device().zero(moments);
  move(false);
  communicator.all_reduce_sum(moments);
  optimizer.normalise(ctx, store, o, moments);
  move(true);
}

// o of all of store.matrices(). Each rank computes u of its own parts, and o of a share of the
// blocks.
Tensor directions_by_ranks(Ctx& ctx, const ParameterStore& store, const TrainConfig& train,
                           Communicator& communicator) {
  const MatrixOptimizer& optimizer = matrix_optimizer(train);
  const GradientRange matrices = store.matrices();
  std::vector<GradientRange> cut;  // the shards that hold some of it
  for (const GradientRange& s : shards_of(store))
    if (s.begin < matrices.end && s.end > matrices.begin) cut.push_back(s);
  const int64_t blocks = optimizer.blocks(store), period = matrices.size() / blocks;
  const int64_t ranks = communicator.size(), rank = communicator.rank();
  const int64_t share = (blocks + ranks - 1) / ranks, all = ranks * share * period;
  const int64_t begin = cut.empty() ? matrices.begin : std::min(matrices.begin, cut.front().begin),
                end = std::max(matrices.begin + all, cut.empty() ? 0 : cut.back().end);
  const Tensor u = ctx.empty({end - begin}, optimizer.dtype(store.compute_dtype()), "optimizer");
  for (const OwnPart& own : store.own_parts())
    if (const OwnPart part = within(own, matrices.begin, matrices.end); part.size > 0)
      optimizer.momentum(ctx, store, part, u.slice(part.begin - begin, {part.size}));
  for (const GradientRange& s : cut) communicator.all_gather(u.slice(s.begin - begin, {s.size()}));
  const int64_t own = std::clamp<int64_t>(blocks - rank * share, 0, share);
  if (own > 0)
    optimizer.directions(ctx, store,
                         u.slice(matrices.begin - begin + rank * share * period, {own, period}));
  communicator.all_gather(u.slice(matrices.begin - begin, {all}));
  const Tensor o = u.slice(matrices.begin - begin, {matrices.size()});
  normalise(ctx, store, optimizer, o, communicator);
  return o;
}
}  // namespace

void update_by_ranks(Ctx& ctx, ParameterStore& store, const TrainConfig& train,
                     Communicator& communicator) {
  const auto shards = shards_of(store);
  prepare_update(ctx, store, train,
                 shards.empty() ? Tensor() : gather_squares(ctx, store, communicator));
  const Tensor o =
      store.matrices().size() > 0 ? directions_by_ranks(ctx, store, train, communicator) : Tensor();
  const std::vector<OwnPart> parts = store.own_parts();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    update_part(ctx, store, train, parts[i], o);
    if (i == shards.size()) continue;
    communicator.fork();  // the all-gather overlaps the update of the next part
    communicator.all_gather(store.compute().slice(shards[i].begin, {shards[i].size()}));
  }
  if (!shards.empty()) communicator.join();
}

// ---- buckets ----

GradientRange GradientBuckets::passed(int32_t first) {
  const auto params = store_.params();
  int64_t lowest = from_;
  for (auto i = static_cast<std::size_t>(first); i < params.size(); ++i)
    if (params[i].decay) lowest = std::min(lowest, params[i].offset);
  if (!shards_.empty()) {
    const auto complete =
        std::ranges::find_if(shards_, [&](const GradientRange& s) { return s.begin >= lowest; });
    lowest = complete == shards_.end() ? from_ : std::min(from_, complete->begin);
  }
  const GradientRange range{lowest, from_};
  if (!enough(range.size(), lowest, least_)) return {};
  from_ = lowest;
  return range;
}

std::vector<GradientRange> GradientBuckets::rest() {
  const int64_t decayed = store_.decayed(), size = store_.gradients().size();
  std::vector<GradientRange> ranges;
  if (from_ == decayed && shards_.empty()) {
    ranges.push_back({0, size});
  } else {
    for (const GradientRange range : {GradientRange{0, from_}, GradientRange{decayed, size}})
      if (range.size() > 0) ranges.push_back(range);
  }
  from_ = 0;
  return ranges;
}
}  // namespace weft
