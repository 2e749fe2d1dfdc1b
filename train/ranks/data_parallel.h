// SPDX-License-Identifier: MIT
// Data parallelism: gradients are reduced during the backward pass, losses averaged, decisions
// agreed on.
#pragma once

#include "src/ranks/communicator.h"
#include "src/ranks/sharding.h"
#include "train/trainer/data_parallel.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// The least number of gradient elements of an all-reduce, from train.bucket_mb.
int64_t bucket_elements(const TrainConfig&, DType gradients);
// How ranks share the optimizer (train.shard_optimizer). Null for a lone process.
std::shared_ptr<Sharding> sharding_of(const TrainConfig&, Communicator*, DType compute);

// All-reduces gradients over the ranks. Each bucket starts when the backward pass has completed it,
// and overlaps with later kernels. With shards, reduce-scatters: each rank gets the sums of its
// own_parts().
class GradientSum : public SharedStep {
 public:
  // train.reduce_dtype bf16 rounds buckets to bf16 and halves the bytes; f32 copies nothing.
  GradientSum(ParameterStore&, Communicator&, const TrainConfig&);

  int rank() const override { return communicator_.rank(); }

  int size() const override { return communicator_.size(); }

  void plan(double seconds) override;
  void begin() override;
  void complete(Ctx&, int32_t first) override;
  void finish(Ctx&) override;
  void update(Ctx&, const TrainConfig&) override;

  int64_t collectives() const { return collectives_; }  // of the last pass

  int64_t bytes() const { return bytes_; }  // that each rank gave to them

 private:
  Tensor ready(Ctx&, const GradientRange&);
  void start(Ctx&, const std::vector<GradientRange>&);

  ParameterStore& store_;
  Communicator& communicator_;
  GradientBuckets buckets_;
  Tensor copy_;  // bf16, or empty
  int64_t collectives_ = 0, bytes_ = 0;
};

// Lets ranks agree on the step at which they stop, and on the reason.
class StopAgreement {
 public:
  explicit StopAgreement(Processes& group)
      : group_(group) {}

  // Every rank calls it before update `step`, with its own reason to stop or "". Returns the reason
  // of the lowest rank that has one. Ranks communicate about every half second, not at each step.
  std::string agree(int64_t step, const std::string& mine);

 private:
  using Clock = std::chrono::steady_clock;
  Processes& group_;
  int64_t pause_ = 1, next_ = 0;  // steps between the last two agreements; of the next
  Clock::time_point spoken_ = Clock::now();
};

// Collective. Returns the smallest micro-batch that any rank chose.
MicroBatch smallest_micro_batch(ProcessGroup&, const MicroBatch& mine);

// Collective: the lowest rank's message and its number; "" if there is none.
std::string first_to_speak(ProcessGroup&, const std::string& mine);

// Collective: losses of every step averaged over the ranks, in their order.
void average_losses(ProcessGroup&, std::vector<StepResults>&);

// Collective. When weights differ, rank 0 throws an Error that names the ranks that differ; the
// others end.
void check_equal_weights(ProcessGroup&, Device&, const ParameterStore&, int64_t step);

class RankParallel : public DataParallel {
 public:
  RankParallel(Device&, ProcessGroup&);

  ProcessGroup& group() { return group_; }

  Communicator& communicator() { return *communicator_; }

  std::string text() override;

  std::string started_by() const override {
    const std::string& source = group_.world().source;
    return source == "--gpus" ? "" : source;
  }

  std::shared_ptr<Sharing> sharing(const TrainConfig&, DType compute) override;
  std::unique_ptr<SharedStep> share_step(ParameterStore&, const TrainConfig&) override;

  MicroBatch smallest(const MicroBatch& mine) override {
    return smallest_micro_batch(group_, mine);
  }

  std::string agree(Work work, int64_t position, const std::string& mine) override {
    return (work == Work::training ? training_ : evaluation_).agree(position, mine);
  }

  std::string first_message(const std::string& mine) override {
    return first_to_speak(group_, mine);
  }

  void average_losses(std::vector<StepResults>& steps) override {
    weft::average_losses(group_, steps);
  }

  void check_equal_weights(const ParameterStore& store, int64_t step) override {
    weft::check_equal_weights(group_, device_, store, step);
  }

 private:
  Device& device_;
  ProcessGroup& group_;
  std::unique_ptr<Communicator> communicator_;
  StopAgreement training_, evaluation_;
};
}  // namespace weft
