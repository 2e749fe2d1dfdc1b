// SPDX-License-Identifier: MIT
#include "train/ranks/data_parallel.h"

#include "kernels/layers/pointwise.h"
#include "src/config/config.h"
#include "train/trainer/fingerprints.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace weft {
constexpr double kSecondsBetweenAgreements = 0.5;
// Upper bound, besides twice the pause before: the clock sees launched steps, not finished ones.
constexpr int64_t kStepsBetweenAgreements = 64;

int64_t bucket_elements(const TrainConfig& train, DType gradients) {
  return train.bucket_mb * 1000000 / size_of(gradients);
}

std::shared_ptr<Sharding> sharding_of(const TrainConfig& train, Communicator* communicator,
                                      DType compute) {
  if (!train.shard_optimizer) return nullptr;
  return Sharding::make(communicator, bucket_elements(train, wide(compute)));
}

// ---- GradientSum ----

GradientSum::GradientSum(ParameterStore& store, Communicator& communicator,
                         const TrainConfig& train)
    : store_(store),
      communicator_(communicator),
      buckets_(store, bucket_elements(train, store.gradients().dtype())) {
  if (train.reduce_dtype == DType::bf16)
    copy_ = Tensor(*store.device().pool, {store.gradients().size()}, DType::bf16, "gradient sums");
}

void GradientSum::plan(double seconds) {
  communicator_.plan((copy_ ? copy_.view() : store_.gradients().view()).bytes(), seconds);
}

void GradientSum::begin() {
  buckets_.begin();
  collectives_ = bytes_ = 0;
}

// What there is to reduce of a range, whose gradients are complete.
Tensor GradientSum::ready(Ctx& ctx, const GradientRange& range) {
  store_.finish_gradients(range.begin, range.end);
  Tensor part = store_.gradients().slice(range.begin, {range.size()});
  if (on_own_gradients) on_own_gradients(ctx, range, part);
  if (copy_) {
    const Tensor rounded = copy_.slice(range.begin, {range.size()});
    ctx.launch(Cast{.y = rounded, .x = part});
    part = rounded;
  }
  bytes_ += part.view().bytes();
  return part;
}

void GradientSum::start(Ctx& ctx, const std::vector<GradientRange>& ranges) {
  std::vector<TensorView> whole, pieces;
  for (const GradientRange& range : ranges) {
    const Tensor part = ready(ctx, range);
    if (!store_.sharing() || range.begin >= store_.decayed()) {
      whole.push_back(part);
      continue;
    }
    for (const GradientRange& shard : shards_of(store_))
      if (shard.begin >= range.begin && shard.end <= range.end)
        pieces.push_back(part.slice(shard.begin - range.begin, {shard.size()}));
  }
  collectives_ += static_cast<int64_t>(whole.size() + pieces.size());
  communicator_.fork();
  for (const TensorView& t : pieces) communicator_.reduce_scatter_sum(t);
  if (!whole.empty()) communicator_.all_reduce_sums(whole);
}

void GradientSum::complete(Ctx& ctx, int32_t first) {
  if (const GradientRange range = buckets_.passed(first); range.size() > 0) start(ctx, {range});
}

void GradientSum::finish(Ctx& ctx) {
  start(ctx, buckets_.rest());
  communicator_.join();
  if (copy_) ctx.launch(Cast{.y = store_.gradients(), .x = copy_});
}

void GradientSum::update(Ctx& ctx, const TrainConfig& train) {
  update_by_ranks(ctx, store_, train, communicator_);
}

// ---- what ranks agree on ----

std::string StopAgreement::agree(int64_t step, const std::string& mine) {
  if (group_.size() == 1) return mine;
  if (step < next_) return "";
  // Rank 0's clock says when all of them speak again.
  const double seconds = std::chrono::duration<double>(Clock::now() - spoken_).count();
  const double of_step = seconds / static_cast<double>(pause_);
  const auto most = static_cast<double>(std::min(kStepsBetweenAgreements, 2 * pause_));
  const double steps = std::clamp(kSecondsBetweenAgreements / std::max(of_step, 1e-9), 1.0, most);
  const std::vector<int64_t> pause{static_cast<int64_t>(steps)};
  const std::vector<std::string> said = group_.all_gather(message_of(pause) + mine);
  std::memcpy(&pause_, said[0].data(), sizeof pause_);
  next_ = step + pause_;
  spoken_ = Clock::now();
  for (const std::string& message : said)
    if (message.size() > sizeof(int64_t)) return message.substr(sizeof(int64_t));
  return "";
}

void check_equal_weights(ProcessGroup& group, Device& device, const ParameterStore& store,
                         int64_t step) {
  if (group.size() == 1) return;
  const std::string mine = message_of(fingerprints(device, replicated(store)));
  group.require_all(
      mine == group.broadcast(mine)
          ? ""
          : str("after step ", step,
                " its weights are not those of rank 0: a GPU or a link computes wrongly; "
                "nothing was saved"));
}

MicroBatch smallest_micro_batch(ProcessGroup& group, const MicroBatch& mine) {
  MicroBatch smallest = mine;
  for (const std::string& message : group.all_gather(str(mine.accumulation, " ", mine.text))) {
    const std::size_t space = message.find(' ');
    const int64_t accumulation = std::stoll(message.substr(0, space));
    if (accumulation > smallest.accumulation) smallest = {accumulation, message.substr(space + 1)};
  }
  return smallest;
}

std::string first_to_speak(ProcessGroup& group, const std::string& mine) {
  const std::vector<std::string> said = group.all_gather(mine);
  for (std::size_t r = 0; r < said.size(); ++r)
    if (!said[r].empty()) return str(said[r], group.size() > 1 ? str(" (rank ", r, ")") : "");
  return "";
}

void average_losses(ProcessGroup& group, std::vector<StepResults>& steps) {
  std::vector<float> mine;
  for (const StepResults& step : steps) mine.push_back(step.loss);
  std::vector<double> sums(steps.size());
  for (const std::string& message : group.all_gather(message_of(mine))) {
    std::vector<float> losses;
    append_numbers(losses, message);
    WEFT_CHECK(losses.size() == steps.size(), "ranks report losses of ", losses.size(), " and ",
               steps.size(), " steps");
    for (std::size_t i = 0; i < losses.size(); ++i) sums[i] += losses[i];
  }
  for (std::size_t i = 0; i < steps.size(); ++i)
    steps[i].loss = static_cast<float>(sums[i] / static_cast<double>(group.size()));
}

// ---- RankParallel ----

RankParallel::RankParallel(Device& device, ProcessGroup& group)
    : device_(device),
      group_(group),
      communicator_(make_communicator(device, group)),
      training_(group),
      evaluation_(group) {}

std::string RankParallel::text() {
  const std::vector<std::string> local_ranks = group_.all_gather(str(group_.world().local_rank));
  const auto hosts = std::ranges::count(local_ranks, "0");
  return str(group_.size(), " on ", hosts, hosts == 1 ? " host" : " hosts", ", started by ",
             group_.world().source, "; gradients are all-reduced by ", communicator_->carrier());
}

std::shared_ptr<Sharing> RankParallel::sharing(const TrainConfig& train, DType compute) {
  return sharding_of(train, communicator_.get(), compute);
}

std::unique_ptr<SharedStep> RankParallel::share_step(ParameterStore& store,
                                                     const TrainConfig& train) {
  return std::make_unique<GradientSum>(store, *communicator_, train);
}
}  // namespace weft
