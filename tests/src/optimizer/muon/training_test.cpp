// SPDX-License-Identifier: MIT
// train.optimizer muon: what an update changes, and that breaks change nothing.
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/optimizer/optimizer.h"
#include "tests/models/model_testing.h"
#include "tests/testing.h"
#include "tests/train/trainer/f16_runs.h"
#include "tests/train/trainer/matrices.h"
#include "train/trainer/trainer.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
const TrainConfig kMuon = train_with(Optimizer::muon);

TEST(MuonUpdates, LeaveAllOtherParametersToAdamW) {
  const auto device = make_device("cpu");
  ParameterStore adamw, muon;
  add_parameters(adamw, ParamKind::compute);
  add_parameters(muon, ParamKind::matrix);
  for (ParameterStore* store : {&adamw, &muon}) {
    store->allocate(*device, DType::bf16, 1, true, true);
    update_twice(*device, *store, kMuon);
  }
  for (std::size_t i = 0; i < muon.params().size(); ++i) {
    SCOPED_TRACE(muon.params()[i].name);
    const bool same = muon.params()[i].kind != ParamKind::matrix;
    for (const auto& [a, b] : {std::pair{adamw.master(), muon.master()},
                               {adamw.compute(), muon.compute()},
                               {adamw.m(), muon.m()},
                               {adamw.ema(), muon.ema()}})
      EXPECT_EQ(values_of(*device, adamw, a, i) == values_of(*device, muon, b, i), same);
  }
}

// The gradient of the only matrix has rank one, u = s a b^T with |a| = |b| = 1: so has o, whose
// singular value the polynomial alone decides.
TEST(MuonUpdates, OneByHand) {
  const auto device = make_device("cpu");
  ParameterStore store;
  store.add("w", {4, 1}, Init::constant(1), ParamKind::matrix);
  store.allocate(*device, DType::f64, 1, true, false);
  const double gradient[] = {3, 0, 4, 0};
  device->upload(store.gradients().slice(0, {4}), gradient);
  TrainConfig train = kMuon;
  train.muon_weight_decay = 0.125;
  StepScalars step{.matrix_learning_rate = 0.0625f, .momentum = 0.5f};
  StepResults results;
  Ctx ctx{.queue = &device->queue, .pool = device->pool.get(), .step = &step, .results = &results};
  update_parameters(ctx, store, train);
  double s = 1;
  for (int i = 0; i < 5; ++i) s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  // 2: the root of 4 rows a column
  const double decayed = 1 - 0.0625 * 0.125, size = 0.0625 * 2 * s;
  expect_near(to_host(*device, store.master().slice(0, {4})),
              {decayed - 0.6 * size, decayed, decayed - 0.8 * size, decayed}, 1e-6, "weights");
  expect_near(to_host(*device, store.m().slice(0, {4})), {0.3, 0, 0.4, 0}, 1e-6,
              "m of the clipped gradient");
}

TEST(MuonUpdates, TakeWhatTheMemoryPlanCounts) {
  Config config = small_config({"local", 16, 1, 1});
  config.model.width = 128;
  config.train.optimizer = Optimizer::muon;
  const auto device = make_device("cpu");
  ParameterStore store;
  make_model(config, store, *device);
  store.allocate(*device, DType::f32, 0, true, false);
  const std::size_t before = device->pool->in_use();
  StepScalars step;
  StepResults results;
  Ctx ctx{.queue = &device->queue, .pool = device->pool.get(), .step = &step, .results = &results};
  update_parameters(ctx, store, config.train);
  const auto used = static_cast<double>(device->pool->peak() - before + store.state_bytes());
  const MemoryPlan plan = plan_memory(config, 1, config.model.context, true);
  EXPECT_NEAR(static_cast<double>(plan.optimizer), used, 0.01 * used) << device->pool->table();
}

class MuonTraining : public Runs {
 protected:
  static std::vector<std::string> muon(std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"train.optimizer=muon", "train.batch=6"});
    return with(overrides);
  }
};

TEST_F(MuonTraining, LossFallsAndResumesToTheSameBytes) {
  EXPECT_EQ(run("whole", muon({})), "");
  EXPECT_EQ(run("parts", muon({}), {.max_steps = 9}), "");
  EXPECT_CONTAINS(run("parts", muon({"train.optimizer=adamw"}), {.resume = ""}),
                  "train.optimizer: muon in the checkpoint, adamw now");
  EXPECT_EQ(run("parts", muon({}), {.resume = ""}), "");
  EXPECT_TRUE(read_file(latest("parts")) == read_file(latest("whole")));
  EXPECT_LT(of("whole", "loss").back(), of("whole", "loss").front() - 0.5);
}

// The plan of memory counts for the optimizer what its own line says: state and the work of
// updates.
TEST_F(MuonTraining, TheOptimizersLineAddsUpToThePlan) {
  Config config = small_config(dir.path(), {"train.optimizer=muon"});
  const auto device = make_device("cpu");
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, DType::f32, 0, true, true);
  const auto state = static_cast<std::size_t>(store.state_bytes()),
             plan = planned_memory(config, *device, true).optimizer;
  ASSERT_GT(plan, state);
  EXPECT_EQ(run("run", {"train.optimizer=muon", "train.steps=1"}), "");
  EXPECT_CONTAINS(text_of("run"),
                  str("\noptimizer   ", bytes_text(state), " of state; an update takes ",
                      bytes_text(plan - state), " besides\n"));
  EXPECT_CONTAINS(text_of("run"), str(", optimizer ", bytes_text(plan), ", "));
}

using MuonLossScaling = LossScaling;

TEST_F(MuonLossScaling, StepsAheadAreThoseThatAreWaitedFor) {
  expect_ahead_as_waited_for(f16_run(4, {"train.optimizer=muon"}), {0, 5, 10, 15});
}

#ifdef WEFT_CUDA
struct CudaMuonTraining : testing::Test, RunFolders {};

TEST_F(CudaMuonTraining, LearnsAsOnTheCpuAndResumesToTheSameBytes) {
  write_corpus(dir / "corpus.h5", 20000, 32);
  const std::vector<std::string> common{"model.dropout=0", "train.log_every=1",
                                        "train.optimizer=muon"};
  train(small_config(dir.path(), common), {.out = dir / "cpu", .device = "cpu"});
  for (const auto& [precision, tolerance] :
       {std::pair{"f32", 1e-3}, {"bf16", 5e-2}, {"f16", 5e-2}}) {
    SCOPED_TRACE(precision);
    std::vector<std::string> overrides = common;
    overrides.push_back(str("precision=", precision));
    const std::string whole = str("whole_", precision), parts = str("parts_", precision);
    train(small_config(dir.path(), overrides), {.out = dir / whole, .device = "cuda"});
    expect_near_series(whole, "cpu", "loss", tolerance);
    overrides.push_back("train.graph=false");
    const Config config = small_config(dir.path(), overrides);
    train(config, {.out = dir / parts, .device = "cuda", .max_steps = 10});
    train(config, {.resume = "", .out = dir / parts, .device = "cuda"});
    expect_same_latest(whole, parts);
  }
}
#endif
}  // namespace
}  // namespace weft
