// SPDX-License-Identifier: MIT
// Data parallelism: gradients are reduced during the backward pass, losses averaged, decisions
// agreed on.
#pragma once

#include "train/trainer/report.h"

#include <chrono>
#include <string>
#include <vector>

namespace weft {
struct TrainConfig;

// How many elements of the gradients are all-reduced at a time, at least: train.bucket_mb.
int64_t bucket_elements(const TrainConfig&, DType gradients);
// How the optimizer is shared, by train.shard_optimizer; null: a process alone.
Sharding sharding_of(const TrainConfig&, Communicator*, DType compute);

// All-reduces gradients over the ranks. Each bucket starts when the backward pass has completed it,
// and overlaps with later kernels. With shards(), reduce-scatters: each rank gets the sums of its
// own_parts().
class GradientSum {
 public:
  // train.reduce_dtype bf16 rounds buckets to bf16 and halves the bytes; f32 copies nothing.
  GradientSum(Device&, ParameterStore&, Communicator&, const TrainConfig&);

  void plan(double seconds);           // that a backward pass takes at least
  void begin();                        // of the backward pass of the last micro-batch
  void complete(Ctx&, int32_t first);  // called by Ctx::mark
  void finish(Ctx&);                   // after it: what remains; the queue then waits for all
  // From now on keeps the Fingerprint of this process's own gradients of a pass, before they are
  // added up.
  const Tensor& keep_fingerprint();

  int64_t collectives() const { return collectives_; }  // of the last pass

  int64_t bytes() const { return bytes_; }  // that each rank gave to them

 private:
  Tensor ready(Ctx&, const GradientRange&);
  void start(Ctx&, const std::vector<GradientRange>&);

  Device& device_;
  ParameterStore& store_;
  Communicator& communicator_;
  GradientBuckets buckets_;
  Tensor copy_;  // bf16, or empty
  Tensor own_;   // the bytes of a Fingerprint, or empty
  int64_t collectives_ = 0, bytes_ = 0;
};

// Losses of every step averaged over the ranks, in their order; collective. The rest is the same
// everywhere.
void average_losses(ProcessGroup&, std::vector<StepResults>&);

// Why to stop, agreed: a signal or a clock is seen by one rank, at a step of its own.
class StopAgreement {
 public:
  explicit StopAgreement(ProcessGroup& group)
      : group_(group) {}

  // Every rank calls it before update `step` with its own reason or ""; returns the first rank's
  // that has one. Ranks communicate about every half second, not at each step.
  std::string agree(int64_t step, const std::string& mine);

 private:
  using Clock = std::chrono::steady_clock;
  ProcessGroup& group_;
  int64_t pause_ = 1, next_ = 0;  // steps between the last two agreements; of the next
  Clock::time_point spoken_ = Clock::now();
};

// Collective: how many processes are on how many hosts, and what carries their all-reduces. For
// people.
std::string processes_text(ProcessGroup&, const Communicator&);

// Collective: the choice of the rank that takes the smallest micro-batches.
MicroBatch smallest_micro_batch(ProcessGroup&, const MicroBatch& mine);

// Collective: what the first rank says that has anything to say, and which of several; "": all are
// silent.
std::string first_to_speak(ProcessGroup&, const std::string& mine);

// The Fingerprint of each tensor; waits for the device.
std::vector<uint64_t> fingerprints(Device&, const std::vector<TensorView>&);

// Collective. When weights differ, rank 0 throws an Error that names the ranks that differ; the
// others end.
void check_equal_weights(ProcessGroup&, Device&, const ParameterStore&, int64_t step);
}  // namespace weft
