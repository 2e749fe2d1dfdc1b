// SPDX-License-Identifier: MIT
#include "train/trainer/micro_batch.h"

#include <ranges>

#include "src/files/checkpoint.h"
#include "train/trainer/report.h"

namespace weft {
namespace {

// Of the free memory: tables of attention, CUDA graphs, and free blocks of a size that nothing asks for.
constexpr std::size_t kSpareShare = 16;

// Every context of the schedule must be cut into as many equal micro-batches.
bool divides(const Config& config, std::int64_t accumulation) {
  const std::int64_t tokens = config.train.batch * config.model.context, parts = accumulation * config.ranks;
  if (config.train.batch % parts != 0) return false;
  for (const auto& [step, context] : config.train.context_schedule)
    if (tokens / context % parts != 0) return false;
  return true;
}

std::int64_t sequences(const std::string& wish, const Config& config) {
  const std::int64_t count = number_in<std::int64_t>(wish).value_or(0);
  if (count < 1) fail("--batch ", wish, ": expected auto, or a number of sequences");
  const std::int64_t batch = config.train.batch / config.ranks;
  const auto works = [&](std::int64_t m) { return batch % m == 0 && divides(config, batch / m); };
  if (works(count)) return count;
  fail("--batch ", count, " does not divide the ", batch, " sequences of an update (train.batch",
       config.ranks > 1 ? " / processes" : "", ") into equal parts at every context; these do: ",
       joined(std::views::iota(std::int64_t{1}, batch + 1) | std::views::filter(works)));
}

std::string parts_text(std::int64_t batch, std::int64_t accumulation) {
  return str(batch / accumulation, batch == accumulation ? " sequence" : " sequences", " at a time, ",
             accumulation, accumulation == 1 ? " time" : " times", " an update (train.accumulation ",
             accumulation, ")");
}

}  // namespace

MicroBatch choose_micro_batch(const Config& config, const std::string& wish, const Device& device,
                              bool replay) {
  const std::int64_t batch = config.train.batch / config.ranks;
  if (wish != "auto") {
    const std::int64_t accumulation = batch / sequences(wish, config);
    return {accumulation, parts_text(batch, accumulation)};
  }
  const std::size_t free = device.memory_free(), usable = free - free / kSpareShare;
  std::size_t needed = 0;
  for (std::int64_t accumulation = 1; accumulation <= batch; ++accumulation) {
    if (!divides(config, accumulation)) continue;
    Config here = config;
    here.train.accumulation = accumulation;
    const MemoryPlan plan = planned_memory(here, device, true);
    needed =
        plan.total() + planned_memory(here, device, false).activations + (replay ? replay_memory(plan) : 0);
    if (needed <= usable)
      return {accumulation, str("auto: ", parts_text(batch, accumulation), ", planned ", bytes_text(needed),
                                " of ", bytes_text(free), " free")};
  }
  fail("--batch auto: one sequence at a time needs ", bytes_text(needed), ", but ", device.name, " has ",
       bytes_text(free), " free (a ", kSpareShare,
       "th of it is kept for tables and graphs): set train.recompute: block, or shorten model.context");
}

std::optional<MicroBatch> micro_batch_of(const std::string& checkpoint, const Config& config) {
  const TrainConfig there = parse_config(checkpoint_config(checkpoint), checkpoint).train;
  if (!divides(config, there.accumulation)) return std::nullopt;
  return MicroBatch{there.accumulation,
                    str(parts_text(there.batch / config.ranks, there.accumulation), ", as in ", checkpoint)};
}

}  // namespace weft
