// SPDX-License-Identifier: MIT
// ZeRO-1: each process updates its pieces of the weights, and nobody can tell from losses or
// checkpoints.
#include "src/config/config.h"
#include "src/files/checkpoint.h"
#include "src/optimizer/optimizer.h"
#include "tests/train/ranks/rank_runs.h"
#include "train/evaluation/evaluator.h"
#include "train/ranks/data_parallel.h"
#include "train/trainer/step.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<std::string> sharded(std::vector<std::string> overrides) {
  overrides.push_back("train.shard_optimizer=true");
  return overrides;
}

class ShardedOptimizer : public RankRuns {
 protected:
  // Trains a bf16 store, which trainers have on GPUs alone: master weights and weights as kernels
  // read them are two blocks. Leaves <dir>/<name>/latest.h5; from `from`, when it is not "". Losses
  // of rank 0.
  std::vector<double> run_bf16(const std::string& name, int ranks, int64_t first, int64_t end,
                               const std::vector<std::string>& overrides,
                               const std::string& from = "") {
    std::filesystem::create_directories(dir / name);
    expect_cpu_ranks(ranks, [&](CpuRank& r) {
      Config config = small_config(dir.path(), with(overrides));
      config.ranks = ranks;
      ParameterStore store;
      const auto model = make_model(config, store, *r.device);
      store.allocate(*r.device, DType::bf16, config.seed, true, true,
                     sharding_of(config.train, r.comm.get(), DType::bf16));
      if (!from.empty()) load_checkpoint(latest(from), *r.device, store);
      EXPECT_EQ(store.master().size() < store.compute().size(),
                ranks > 1 && config.train.shard_optimizer);
      const TokenDataset data(config.data.path, "train", config.model.vocab);
      const BatchSource source(config, data, nullptr);
      const auto sum =
          ranks > 1 ? std::make_unique<GradientSum>(store, *r.comm, config.train) : nullptr;
      TrainStep step(*r.device, *model, store, config, sum.get());
      for (int64_t i = first; i < end; ++i) step.run(source, i);
      std::vector<StepResults> results = step.results();
      average_losses(r.group, results);
      check_equal_weights(r.group, *r.device, store, end);
      const std::vector<double> weights = to_host(*r.device, store.compute());
      with_ema_weights(*r.device, store, [&] {
        check_equal_weights(r.group, *r.device, store, end);
        EXPECT_NE(to_host(*r.device, store.compute()), weights);
      });
      EXPECT_EQ(to_host(*r.device, store.compute()), weights);
      if (r.rank() > 0) return join_save_checkpoint(store);
      save_checkpoint(latest(name), *r.device, store, {.step = end}, "");
      std::string lines;
      for (const StepResults& s : results)
        lines += str("{\"loss\": ", s.loss, ", \"grad_norm\": ", s.gradient_norm, "}\n");
      write_file(dir / (name + "/metrics.jsonl"), lines);
    });
    return of(name, "loss");
  }
};

// train --init: what is taken, what is extended and what is drawn anew, whole or in pieces.
TEST_F(ShardedOptimizer, RanksStartFromTheWeightsThatOneProcessStartsFrom) {
  EXPECT_EQ(run("from", 1, with({"train.steps=2"})), "");
  const auto more =
      with({"model.context=128", "model.position_axes=[16, 8]", "model.layers=3", "seed=5"});
  const auto start = [&](const std::string& name, int ranks,
                         const std::vector<std::string>& overrides) {
    std::filesystem::create_directories(dir / name);
    expect_cpu_ranks(ranks, [&](CpuRank& r) {
      const Config config = small_config(dir.path(), overrides);
      ParameterStore store;
      const auto model = make_model(config, store, *r.device);
      store.allocate(*r.device, DType::bf16, config.seed, true, true,
                     sharding_of(config.train, r.comm.get(), DType::bf16));
      take_initial_weights(latest("from"), config, *r.device, store);
      check_equal_weights(r.group, *r.device, store, 0);
      if (r.rank() > 0) return join_save_checkpoint(store);
      save_checkpoint(latest(name), *r.device, store, {}, "");
    });
  };
  start("one", 1, more);
  for (const int ranks : {2, 3}) {
    start("whole", ranks, more);
    expect_same_latest("whole", "one");
    start("pieces", ranks, sharded(more));
    expect_same_latest("pieces", "one");
  }
  EXPECT_EQ(run("a", 1, more, {.init = latest("from"), .max_steps = 2}), "");
  EXPECT_EQ(run("b", 2, sharded(more), {.init = latest("from"), .max_steps = 2}), "");
  expect_near_series("b", "a", "loss", 1e-6);
  EXPECT_CONTAINS(text_of("b", 0), "extended: position.0, the first 8 rows taken");
}

TEST_F(ShardedOptimizer, LossesAreThoseOfOneProcess) {
  const auto overrides = with({"train.steps=50"});
  auto cut = overrides;
  cut.push_back("train.accumulation=2");
  EXPECT_EQ(run("one", 1, overrides), "");
  EXPECT_EQ(run("two", 2, sharded(overrides)), "");
  EXPECT_EQ(run("two_cut", 2, sharded(cut)), "");
  EXPECT_EQ(run("four", 4, sharded(overrides)), "");
  ASSERT_EQ(of("one", "loss").size(), 50u);
  for (const char* name : {"two", "two_cut", "four"}) {
    expect_near_series(name, "one", "loss", 1e-6);
    expect_near_series(name, "one", "grad_norm", 1e-5);
  }
}

TEST_F(ShardedOptimizer, CheckpointsAreThoseOfTheWholeOne) {
  const std::vector<std::string> overrides{"train.steps=16", "train.log_every=1",
                                           "train.bucket_mb=1"};
  for (const int ranks : {2, 4}) {
    const std::string whole = str("whole", ranks), parts = str("parts", ranks);
    EXPECT_EQ(run(whole, ranks, overrides), "");
    EXPECT_EQ(run(parts, ranks, sharded(overrides), {.max_steps = 7}), "");
    EXPECT_EQ(run(parts, ranks, ranks == 2 ? sharded(overrides) : overrides,
                  {.resume = "", .allow_changes = true}),
              "");
    expect_same_latest(parts, whole);
    expect_same_tensors(dir / (whole + "/best.h5"), dir / (parts + "/best.h5"));
    for (const char* key : {"grad_norm", "valid_bits_ema"})
      EXPECT_EQ(of(whole, key), of(parts, key));
  }
}

TEST_F(ShardedOptimizer, RunsGoOnWithItOrWithoutOnAnyNumberOfProcesses) {
  const auto overrides = with({"train.steps=20"});
  EXPECT_EQ(run("one", 1, overrides), "");
  EXPECT_EQ(run("mixed", 2, sharded(overrides), {.max_steps = 5}), "");
  EXPECT_EQ(run("mixed", 4, overrides, {.resume = "", .max_steps = 9, .allow_changes = true}), "");
  EXPECT_EQ(
      run("mixed", 4, sharded(overrides), {.resume = "", .max_steps = 13, .allow_changes = true}),
      "");
  EXPECT_EQ(
      run("mixed", 1, sharded(overrides), {.resume = "", .max_steps = 17, .allow_changes = true}),
      "");
  EXPECT_EQ(run("mixed", 2, sharded(overrides), {.resume = "", .allow_changes = true}), "");
  expect_near_series("mixed", "one", "loss", 1e-6);
}

// Sums on the CPU have one order and are rounded once: the same bits.
TEST_F(ShardedOptimizer, InBf16ThereAreTheSameBits) {
  for (const char* reduce : {"f32", "bf16"}) {
    const std::vector<std::string> overrides{"train.accumulation=2", "train.bucket_mb=1",
                                             str("train.reduce_dtype=", reduce)};
    const std::string whole = str("whole", reduce), parts = str("parts", reduce);
    EXPECT_EQ(run_bf16(whole, 2, 0, 20, overrides).size(), 20u);
    EXPECT_LT(of(whole, "loss").back(), of(whole, "loss").front());
    run_bf16(parts, 2, 0, 20, sharded(overrides));
    for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(of(parts, key), of(whole, key));
    expect_same_latest(parts, whole);
  }
}

TEST_F(ShardedOptimizer, InBf16StateTravelsBetweenNumbersOfProcesses) {
  run_bf16("from", 2, 0, 6, sharded({}));
  for (const auto& [name, ranks] : {std::pair{"four", 4}, {"one", 1}}) {
    run_bf16(name, ranks, 6, 6, sharded({}), "from");  // no step: what was read is written
    expect_same_latest(name, "from");
  }
  run_bf16("whole", 2, 6, 12, {}, "from");
  run_bf16("again", 2, 6, 12, sharded({}), "four");
  expect_same_latest("again", "whole");
}

// Of odd numbers of elements: whole parameters in each range, eights in each piece, nothing twice.
TEST_F(ShardedOptimizer, PiecesCoverTheParameters) {
  for (const DType compute : {DType::bf16, DType::f32})
    for (const int64_t least : {0, 1, 100, 1000}) {
      SCOPED_TRACE(least);
      expect_cpu_ranks(3, [&](CpuRank& r) {
        ParameterStore store, alone;
        for (ParameterStore* s : {&store, &alone}) {
          for (int i = 0; i < 6; ++i) s->add(str("w", i), {7, 11}, Init::normal(1));
          s->add("norm", {9}, Init::normal(1), ParamKind::wide);
          s->add("bias", {5}, Init::normal(1));
        }
        store.allocate(*r.device, compute, 1, true, true, Sharding::make(r.comm.get(), least));
        alone.allocate(*r.device, compute, 1, true, true);
        int64_t at = 0, state = 0;
        const std::vector<OwnPart> parts = store.own_parts();
        EXPECT_EQ(shards_of(store).size(), least == 0     ? 1u
                                           : least == 1   ? 6u
                                           : least == 100 ? 4u
                                                          : 3u);
        ASSERT_EQ(parts.size(), shards_of(store).size() + 1);
        for (std::size_t i = 0; i < shards_of(store).size(); ++i) {
          const GradientRange range = shards_of(store)[i];
          EXPECT_EQ(range.begin, at);
          EXPECT_EQ(range.size() % (3 * 8), 0);
          EXPECT_EQ(parts[i], (OwnPart{at + r.rank() * range.size() / 3, range.size() / 3, state}));
          at = range.end;
          state += range.size() / 3;
        }
        EXPECT_EQ(store.decayed(), at);
        EXPECT_EQ(parts.back(), (OwnPart{at, 16 + 8, state}));
        for (const ParamInfo& p : store.params()) {
          EXPECT_EQ(
              std::ranges::count_if(
                  shards_of(store),
                  [&](const auto& s) { return s.begin <= p.offset && p.offset + p.size <= s.end; }),
              p.decay);
        }
        for (const Tensor& block : {store.m(), store.v(), store.ema()})
          EXPECT_EQ(block.size(), state + 16 + 8);
        EXPECT_EQ(store.master().size(), compute == DType::f32 ? at + 24 : state + 24);
        const int64_t blocks = compute == DType::bf16 ? 4 : 3;  // the master, m, v, ema; f32
        EXPECT_EQ(store.state_bytes(), blocks * 4 * (state + 24));
        EXPECT_EQ(whole_state_bytes(store), blocks * 4 * (at + 24));
        EXPECT_EQ(whole_state_bytes(alone), alone.state_bytes());
        // The whole has the values of a process alone, from whoever has them.
        std::size_t seen = 0;
        for (const auto& [block, all] :
             {std::pair{store.master(), alone.master()}, {store.ema(), alone.master()}})
          store.visit_whole(block, [&](const ParamInfo& p, const TensorView& values) {
            const ParamInfo& other = alone.params()[seen++ % 8];
            EXPECT_EQ(p.name, other.name);
            EXPECT_EQ(to_host(*r.device, values),
                      to_host(*r.device, all.slice(other.offset, other.shape)));
          });
        EXPECT_EQ(seen, 16u);
        for (int32_t i = 0; i < 8; ++i)
          EXPECT_EQ(to_host(*r.device, store.var({i}).value),
                    to_host(*r.device, alone.var({i}).value));
      });
    }
}

// The master weights differ by design; those that kernels read may not.
TEST_F(ShardedOptimizer, WeightsThatDifferAreFound) {
  for (const bool norm : {false, true}) {
    Ranks processes(2, [&](const World& world) {
      CpuRank r(world);
      ParameterStore store;
      const Param weight = store.add("w", {3, 5}, Init::normal(1)),
                  wide = store.add("norm", {5}, Init::normal(1), ParamKind::wide);
      store.allocate(*r.device, DType::bf16, 1, true, false, Sharding::make(r.comm.get()));
      check_equal_weights(r.group, *r.device, store, 7);
      if (world.rank == 1) {
        if (norm) {
          store.var(wide).value.view().as<float>()[4] += 1e-6f;
        } else {
          r.device->zero(store.var(weight).value.slice(4, {1}));
        }
      }
      check_equal_weights(r.group, *r.device, store, 8);
      ADD_FAILURE() << "not reached";
    });
    EXPECT_TRUE(processes.end());
    EXPECT_EQ(processes.code(1), 1);
    EXPECT_CONTAINS(processes.errors(0), "rank 1");
    EXPECT_CONTAINS(processes.errors(0), "after step 8");
  }
}

// One update of more ranges than one sum of squares takes, by gradients that are complete
// everywhere.
TEST(ShardedUpdate, OfManyRangesIsThatOfTheWhole) {
  constexpr int kWeights = 150;
  expect_cpu_ranks(3, [](CpuRank& r) {
    StepScalars step;
    step.learning_rate = 0.5f;
    step.beta1_correction = step.beta2_correction = 0.1f;
    StepResults results[2];
    ParameterStore stores[2];
    for (int i = 0; i < 2; ++i) {
      for (int w = 0; w < kWeights; ++w) stores[i].add(str("w", w), {3, 5}, Init::normal(1));
      stores[i].add("bias", {5}, Init::normal(1));
      stores[i].allocate(*r.device, DType::bf16, 1, true, true,
                         i == 1 ? Sharding::make(r.comm.get(), 1) : nullptr);
      const std::vector<float> gradient{3, 1, -4, 1, 5, -9, 2, 6, 5, -3, 5, 8, 9, 7, 9};
      for (int w = 0; w <= kWeights; ++w) {
        const Tensor slot = stores[i].var({w}).gradient->tensor;
        r.device->upload(slot, gradient.data());
      }
      Ctx ctx{
          .queue = &r.device->queue,
          .pool = r.device->pool.get(),
          .step = &step,
          .results = &results[i],
      };
      update_by_ranks(ctx, stores[i], {}, *r.comm);
    }
    EXPECT_EQ(shards_of(stores[1]).size(), static_cast<std::size_t>(kWeights));
    EXPECT_LT(results[0].update_scale, 0.1f);
    EXPECT_EQ(results[1].gradient_norm, results[0].gradient_norm);
    EXPECT_EQ(results[1].update_scale, results[0].update_scale);
    for (int w = 0; w <= kWeights; ++w)
      EXPECT_EQ(to_host(*r.device, stores[1].var({w}).value),
                to_host(*r.device, stores[0].var({w}).value));
  });
}

TEST(ShardedUpdate, IsNoUpdateOfOneProcess) {
  expect_cpu_ranks(2, [](CpuRank& r) {
    ParameterStore store;
    store.add("w", {3, 5}, Init::normal(1));
    store.allocate(*r.device, DType::f32, 1, true, false, Sharding::make(r.comm.get()));
    StepScalars step;
    StepResults results;
    Ctx ctx{
        .queue = &r.device->queue,
        .pool = r.device->pool.get(),
        .step = &step,
        .results = &results,
    };
    EXPECT_CONTAINS(error_of([&] { update_parameters(ctx, store, {}); }),
                    "this process has a share of the store alone");
  });
}
}  // namespace
}  // namespace weft
