// SPDX-License-Identifier: MIT
// --batch: what fits, what divides, and that a run goes on as it was.
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "tests/train/training.h"
#include "train/trainer/report.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <omp.h>
#include <string>

namespace weft {
namespace {
// A CPU that says how much memory it has.
class SmallDevice : public Device {
 public:
  explicit SmallDevice(std::size_t free)
      : free_(free) {
    name = "cpu";
    queue = CpuQueue{};
    pool = make_cpu_pool();
  }

  void upload(const TensorView&, const void*) override {}

  void download(void*, const TensorView&) override {}

  void upload_async(void*, const void*, std::size_t) override {}

  void zero(const TensorView&) override {}

  void synchronize() override {}

  std::unique_ptr<QueueMark> make_mark() override { return nullptr; }

  std::string description() const override { return "small"; }

  std::size_t memory_free() const override { return free_; }

 private:
  std::size_t free_;
};

std::size_t needed(Config config, int64_t accumulation) {
  config.train.accumulation = accumulation;
  const SmallDevice device(0);
  return planned_memory(config, device, true).total() +
         planned_memory(config, device, false).activations;
}

TEST(MicroBatch, AutoTakesTheMostThatFits) {
  const Config config = small_config("x", {"train.batch=12"});
  for (const int64_t accumulation : {1, 2, 3, 4, 6, 12}) {
    const std::size_t free = needed(config, accumulation) * 16 / 15 + 16;
    EXPECT_EQ(choose_micro_batch(config, "auto", SmallDevice(free)).accumulation, accumulation);
  }
  const auto error = [&] {
    try {
      choose_micro_batch(config, "auto", SmallDevice(needed(config, 12)));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_CONTAINS(error(), "--batch auto: one sequence at a time needs ");
  EXPECT_CONTAINS(error(), "set train.recompute: block, or shorten model.context");
}

TEST(MicroBatch, DividesTheUpdateAtEveryContext) {
  const Config plain = small_config("x", {"train.batch=6"});
  const SmallDevice device(0);
  EXPECT_EQ(choose_micro_batch(plain, "3", device).accumulation, 2);
  EXPECT_CONTAINS(choose_micro_batch(plain, "3", device).text,
                  "3 sequences at a time, 2 times an update (train.accumulation 2)");
  const auto error_of = [&](const std::string& wish) {
    try {
      choose_micro_batch(plain, wish, device);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of("4"),
            "--batch 4 does not divide the 6 sequences of an update (train.batch) into equal parts "
            "at every "
            "context; these do: 1, 2, 3, 6");
  // 6 windows of 64 tokens are 8 of 48, which 3 does not divide.
  const Config schedule =
      small_config("x", {"train.batch=6", "train.context_schedule=[[0, 48], [2, 64]]"});
  EXPECT_EQ(choose_micro_batch(schedule, "3", device).accumulation, 2);
  EXPECT_CONTAINS(weft::error_of([&] { choose_micro_batch(schedule, "2", device); }),
                  "these do: 3, 6");
  for (const char* wish : {"0", "-1", "many", "2x", "1.5"})
    EXPECT_EQ(error_of(wish), str("--batch ", wish, ": expected auto, or a number of sequences"));
}

TEST(MicroBatch, IsWrittenDownAndKeptWhenTheRunGoesOn) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const Config config = small_config(dir.path());
  const std::string text =
      train(config, {.out = dir / "run", .device = "cpu", .batch = "2", .max_steps = 3});
  EXPECT_CONTAINS(text,
                  "batch       2 sequences at a time, 2 times an update (train.accumulation 2)");
  EXPECT_CONTAINS(text, "go on with: train --resume " + (dir / "run") + "\n");
  EXPECT_EQ(load_config(dir / "run/config.yaml").train.accumulation, 2);
  // auto would take all four at a time: the memory is there.
  EXPECT_CONTAINS(
      train(config,
            {.resume = "", .out = dir / "run", .device = "cpu", .batch = "auto", .max_steps = 5}),
      "train.accumulation 2), as in ");
  train(load_config(dir / "run/config.yaml"), {.resume = "", .out = dir / "run", .device = "cpu"});
  train(config, {.out = dir / "whole", .device = "cpu", .batch = "2"});
  EXPECT_TRUE(read_file(dir / "run/latest.h5") == read_file(dir / "whole/latest.h5"));
  EXPECT_CONTAINS(
      train(config, {.out = dir / "auto", .device = "cpu", .batch = "auto", .max_steps = 1}),
      "batch       auto: 4 sequences at a time, 1 time an update (train.accumulation 1), planned ");
}

// All kernels of a step on the CPU, where they are large enough for several threads.
TEST(CpuStep, SameBitsForAnyNumberOfThreads) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 60000, 32);
  const Config config =
      small_config(dir.path(), {"train.batch=32", "train.steps=3", "model.width=64"});
  const int threads = omp_get_max_threads();
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    train(config, {.out = dir / str(count), .device = "cpu"});
  }
  omp_set_num_threads(threads);
  for (const char* other : {"2", "5"})
    EXPECT_TRUE(read_file(dir / "1/latest.h5") ==
                read_file(dir / (std::string(other) + "/latest.h5")))
        << other;
}
}  // namespace
}  // namespace weft
