// SPDX-License-Identifier: MIT
// A step: what it keeps in memory; on CUDA, that it is launched without waiting for the device, and
// that whatever changes from step to step reaches its graphs.
#include "kernels/interruption.h"
#include "tests/src/gate.h"
#include "tests/train/trainer/steps.h"
#include "train/trainer/fingerprints.h"
#include "train/trainer/step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
namespace {
// Bytes of a step beside those that stay, in runs of 4 and of 8 layers.
TEST(TrainStep, RecomputingKeepsTheInputsOfBlocksAlone) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const auto bytes = [&](const char* recompute, int layers) {
    Steps steps(
        small_config(dir.path(), {str("train.recompute=", recompute), str("model.layers=", layers),
                                  "model.attention=[{kind: local, stride: 8}]"}),
        "cpu");
    const std::size_t before = steps.device->pool->in_use();
    steps.device->pool->reset_peak();
    steps.run(1);
    return steps.device->pool->peak() - before;
  };
  const std::size_t input = 4 * 64 * 32 * sizeof(float);  // (batch, context, width)
  EXPECT_EQ(bytes("block", 8) - bytes("block", 4), 4 * input);
  EXPECT_GT(bytes("none", 8) - bytes("none", 4), 4 * 10 * input);
}

// More than there are places for, and in any portions.
TEST(TrainStep, HasTheResultsOfEveryUpdate) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const Config config = small_config(dir.path(), {"train.accumulation=2", "model.context=16",
                                                  "model.position_axes=[4, 4]", "train.steps=70"});
  Steps at_once(config, "cpu"), one_by_one(config, "cpu"), late(config, "cpu");
  at_once.run(70);
  const std::vector<StepResults> all = at_once.step->results();
  ASSERT_EQ(all.size(), 70u);
  EXPECT_NE(all[0].loss, all[69].loss);
  for (std::size_t i = 0; i < all.size(); ++i) {
    one_by_one.run(1);
    if (i % 5 == 0) late.run(5);
    for (Steps* steps : {&one_by_one, &late}) {
      const StepResults r = steps->step->next_result();
      EXPECT_EQ(r.loss, all[i].loss) << i;
      EXPECT_EQ(r.gradient_norm, all[i].gradient_norm) << i;
    }
  }
  Config whole = config;
  whole.train.accumulation = 1;
  Steps in_one(whole, "cpu");
  in_one.run(1);
  EXPECT_NEAR(in_one.step->next_result().loss, all[0].loss, 1e-5) << "the mean over micro-batches";
  EXPECT_TRUE(late.step->results().empty());
  EXPECT_THROW(late.step->next_result(), Error);
}

// Asked to stop between micro-batches or between layers, a step leaves all as it was, and runs
// again.
TEST(TrainStep, AStepThatIsGivenUpHasChangedNothing) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const Config config = small_config(dir.path(), {"train.accumulation=2"});
  Steps whole(config, "cpu"), given_up(config, "cpu");
  whole.run(3);
  given_up.run(2);
  const std::vector<double> before = to_host(*given_up.device, given_up.store.master());

  struct Stop {};

  EXPECT_THROW(given_up.step->run(given_up.source, 2, [] { throw Stop(); }), Stop);
  interrupt_requested = true;
  EXPECT_THROW(given_up.run(1), Interrupted);
  EXPECT_FALSE(interrupted()) << "what unwinds may launch kernels";
  EXPECT_THROW(given_up.step->run(given_up.source, 2, [] { interrupt_requested = true; }),
               Interrupted);
  EXPECT_EQ(to_host(*given_up.device, given_up.store.master()), before);
  EXPECT_EQ(given_up.step->results().size(), 2u);
  given_up.run(1);
  EXPECT_EQ(to_host(*given_up.device, given_up.store.master()),
            to_host(*whole.device, whole.store.master()));
  EXPECT_EQ(given_up.step->results()[0].loss, whole.step->results()[2].loss);
}

// Weights in the order of the model, then gradients from the last one on, as they come.
TEST(TrainStep, NamesTheFirstThatIsNotFinite) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  Steps steps(small_config(dir.path(), {"precision=f16"}), "cpu", DType::f16);
  steps.run(1);
  EXPECT_EQ(steps.step->find_non_finite(steps.source, 1, 1), "");
  const auto params = steps.store.params();
  // The gradient between these two overflows before those of later layers do.
  for (const auto& [name, factor] :
       {std::pair{"blocks.1.mlp.up.weight", 1.0f / 4096}, {"blocks.1.mlp.down.weight", 4096.0f}}) {
    const auto p = std::find_if(params.begin(), params.end(),
                                [&](const ParamInfo& q) { return q.name == name; });
    float* values = steps.store.master().view().as<float>() + p->offset;
    for (int64_t i = 0; i < p->size; ++i) values[i] *= factor;
  }
  Ctx ctx{.queue = &steps.device->queue, .pool = steps.device->pool.get()};
  steps.store.refresh_compute(ctx);
  bool among_several = false;
  for (double scale = 16; scale < 1e9; scale *= 2) {
    const std::string found = steps.step->find_non_finite(steps.source, 1, scale);
    const std::vector<double> gradients = to_host(*steps.device, steps.store.gradients());
    std::vector<std::string> overflown;
    for (const ParamInfo& p : params) {
      const auto first = gradients.begin() + p.offset;
      if (!std::all_of(first, first + p.size, [](double g) { return std::isfinite(g); }))
        overflown.push_back(p.name);
    }
    EXPECT_EQ(found.empty(), overflown.empty()) << scale;
    if (overflown.empty()) continue;
    EXPECT_EQ(found.substr(0, found.find(" (")), "the gradient of " + overflown.back()) << scale;
    among_several |= overflown.size() > 1 && overflown.size() < params.size();
  }
  EXPECT_TRUE(among_several);
  const float nan = NAN;
  for (const std::size_t at : {params.size() / 2, params.size() / 3}) {  // two in the end
    steps.device->upload(steps.store.master().slice(params[at].offset + 1, {1}), &nan);
    EXPECT_EQ(steps.step->find_non_finite(steps.source, 1, 1),
              str("the weight ", params[at].name, " (1 of ", params[at].size, " values)"));
  }
}

// Whatever memory holds that nobody has written, here `value` in each byte: what an update
// computes.
std::vector<uint64_t> updates_in_memory_of(const Config& config, const std::string& on, int value) {
  const auto prepare = [value](Device& device) {
    MemoryPool::Allocate allocate = [value](std::size_t bytes) {
      return std::memset(std::aligned_alloc(256, bytes), value, bytes);
    };
    MemoryPool::Free release = [](void* p) { std::free(p); };
#ifdef WEFT_CUDA
    if (auto* queue = std::get_if<CudaQueue>(&device.queue)) {
      WEFT_CUDA_CALL(cudaMemset(queue->workspace, value, queue->workspace_bytes));
      allocate = [value](std::size_t bytes) {
        void* p = nullptr;
        WEFT_CUDA_CALL(cudaMalloc(&p, bytes));
        WEFT_CUDA_CALL(cudaMemset(p, value, bytes));
        WEFT_CUDA_CALL(cudaDeviceSynchronize());
        return p;
      };
      release = [](void* p) { static_cast<void>(cudaFree(p)); };
    }
#endif
    device.pool = std::make_shared<MemoryPool>("a test", allocate, release);
  };
  Steps steps(config, on, {}, prepare);
  steps.run(4);
  EXPECT_TRUE(std::isfinite(steps.step->results().back().loss));
  return fingerprints(*steps.device,
                      {steps.store.master(), steps.store.compute(), steps.store.gradients(),
                       steps.store.m(), steps.store.v(), steps.store.ema()});
}

// Zeros, NaN, small numbers.
void expect_nothing_read_unwritten(const Config& config, const std::string& on) {
  const std::vector<uint64_t> zeros = updates_in_memory_of(config, on, 0);
  EXPECT_EQ(updates_in_memory_of(config, on, 0xff), zeros);
  EXPECT_EQ(updates_in_memory_of(config, on, 0x3c), zeros);
}

TEST(TrainStep, ReadsNothingThatNobodyHasWritten) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  expect_nothing_read_unwritten(small_config(dir.path(), {"train.accumulation=2"}), "cpu");
}

TEST(DeviceBatch, TakesBatchesLikeTheFirst) {
  const auto device = make_device("cpu");
  DeviceBatch batch(*device, "test");
  EXPECT_FALSE(batch.made());
  batch.make({.tokens = {1, 2, 3, 4, 5, 6}, .offsets = {7, 8}, .positions = {}, .conditions = {}},
             2, 3);
  EXPECT_TRUE(batch.made());
  batch.upload(
      {.tokens = {6, 5, 4, 3, 2, 1}, .offsets = {9, 0}, .positions = {}, .conditions = {}});
  EXPECT_EQ(to_host(*device, batch.sequences().tokens), (std::vector<double>{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(to_host(*device, batch.sequences().offsets), (std::vector<double>{9, 0}));
  EXPECT_CONTAINS(
      error_of([&] {
        batch.check({.tokens = {1, 2, 3, 4}, .offsets = {7, 8}, .positions = {}, .conditions = {}});
      }),
      "a batch with 4 numbers where the first one had (2, 3)");
  EXPECT_THROW(
      batch.upload(
          {.tokens = {1, 2, 3, 4, 5, 6}, .offsets = {}, .positions = {}, .conditions = {}}),
      Error);
}

#ifdef WEFT_CUDA
TEST(CudaTrainStep, RunsAheadOfTheDevice) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  for (const char* precision : {"bf16", "f16"})
    for (const char* accumulation : {"1", "2"}) {
      Steps steps(small_config(dir.path(), {str("precision=", precision),
                                            str("train.accumulation=", accumulation)}),
                  "cuda");
      steps.run(4);  // from the third on, graphs
      steps.device->synchronize();
      Gate gate;
      gate.close(std::get<CudaQueue>(steps.device->queue).stream);
      steps.run(3);
      EXPECT_TRUE(gate.open()) << "a step waited for the device";
      EXPECT_EQ(steps.step->results().size(), 7u);
    }
}

TEST(CudaTrainStep, ReadsNothingThatNobodyHasWritten) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  for (const char* precision : {"f32", "bf16", "f16"})
    for (const char* context : {"16", "64"})
      expect_nothing_read_unwritten(
          small_config(dir.path(), {str("precision=", precision), "train.accumulation=2",
                                    str("train.context_schedule=[[0, ", context, "]]")}),
          "cuda");
}

// Training starts at 65,536, and the window is counted on the device.
TEST(CudaTrainStep, ALossScaleIsCountedWithoutWaiting) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  Steps steps(small_config(dir.path(), {"precision=f16", "train.loss_scale_window=3"}), "cuda");
  EXPECT_EQ(steps.step->loss_scale().scale, 65536);
  steps.run(4);
  const LossScale before = steps.step->loss_scale();
  EXPECT_EQ(before.scale, std::ldexp(65536.0, 1 - static_cast<int>(before.skipped)));
  Gate gate;
  gate.close(std::get<CudaQueue>(steps.device->queue).stream);
  steps.run(3);
  EXPECT_TRUE(gate.open()) << "a step waited for the device";
  LossScale want = before;
  std::vector<StepResults> results = steps.step->results();
  ASSERT_EQ(results.size(), 7u);
  for (std::size_t i = 4; i < results.size(); ++i) {
    want.count(std::isfinite(results[i].gradient_norm), 3);
    EXPECT_EQ(results[i].loss_scale, static_cast<float>(want.scale));
  }
  const LossScale after = steps.step->loss_scale();
  EXPECT_EQ(after.scale, want.scale);
  EXPECT_EQ(after.good_steps, want.good_steps);
  EXPECT_EQ(after.skipped, want.skipped);
}

TEST(CudaTrainStep, WhatChangesReachesTheGraphs) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 20000, 32);
  for (const char* precision : {"bf16", "f16"})
    for (const char* accumulation : {"1", "2"}) {
      SCOPED_TRACE(str(precision, ", ", accumulation, " micro-batches"));
      const auto run = [&](const std::string& name, const char* graph) {
        train(
            small_config(
                dir.path(),
                {str("precision=", precision), str("train.accumulation=", accumulation),
                 str("train.graph=", graph), "train.context_schedule=[[0, 16], [7, 32], [13, 64]]",
                 "train.loss_scale=16777216", "train.loss_scale_window=4", "train.log_every=1"}),
            {.out = dir / name, .device = "cuda"});
        return dir / name;
      };
      const std::string common = str(precision, accumulation);
      const std::string graphs = run(common + "graphs", "true"),
                        eager = run(common + "eager", "false");
      expect_same_tensors(graphs + "/latest.h5", eager + "/latest.h5");
      EXPECT_EQ(timeless_metrics(graphs + "/metrics.jsonl"),
                timeless_metrics(eager + "/metrics.jsonl"));
      const auto differ = [&](const char* key) {
        const std::vector<double> values = metric(graphs + "/metrics.jsonl", key);
        return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) !=
               values.end();
      };
      EXPECT_TRUE(differ("lr"));
      EXPECT_TRUE(differ("context"));
      EXPECT_EQ(differ("loss_scale"), std::string(precision) == "f16");
    }
}

#endif
}  // namespace
}  // namespace weft
