// SPDX-License-Identifier: MIT
// train.optimizer muon: what an update changes, and that ranks, pieces of weights and breaks change
// nothing.
#include "src/config/config.h"
#include "src/optimizer.h"
#include "tests/testing.h"
#include "tests/train/ranks/rank_runs.h"
#include "train/trainer/trainer.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Three blocks of two matrices of odd sizes between parameters that AdamW updates.
void add_parameters(ParameterStore& store, ParamKind matrices) {
  store.add("embedding", {7, 5}, Init::normal(1));
  for (int block = 0; block < 3; ++block) {
    store.add(str("norm", block), {5}, Init::normal(1), ParamKind::wide);
    store.add(str("up", block), {9, 5}, Init::normal(1), matrices);
    store.add(str("down", block), {5, 9}, Init::normal(1), matrices);
  }
  store.add("output", {3, 5}, Init::normal(1));
}

// Two updates with gradients that depend on nothing but the parameter.
void update_twice(Device& device, ParameterStore& store, Communicator* communicator) {
  for (std::size_t i = 0; i < store.params().size(); ++i) {
    const ParamInfo& p = store.params()[i];
    const std::vector<float> gradient =
        converted<float>(normals(p.size, static_cast<unsigned>(i) + 1));
    device.upload(store.gradients().slice(p.offset, p.shape), gradient.data());
  }
  StepScalars step{
      .learning_rate = 0.25f,
      .muon_learning_rate = 0.5f,
      .ema_decay = 0.5f,
      .momentum = 0.75f,
  };
  step.beta1_correction = step.beta2_correction = 0.1f;
  StepResults results;
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get(), .step = &step, .results = &results};
  for (int i = 0; i < 2; ++i) update_parameters(ctx, store, {}, communicator);
}

std::vector<double> values_of(Device& device, const ParameterStore& store, const Tensor& block,
                              std::size_t i) {
  std::vector<double> values;
  store.visit_whole(block, [&](const ParamInfo& p, const TensorView& view) {
    if (p.name == store.params()[i].name) values = to_host(device, view);
  });
  return values;
}

TEST(MuonUpdates, LeaveAllOtherParametersToAdamW) {
  const auto device = make_device("cpu");
  ParameterStore adamw, muon;
  add_parameters(adamw, ParamKind::compute);
  add_parameters(muon, ParamKind::muon);
  for (ParameterStore* store : {&adamw, &muon}) {
    store->allocate(*device, DType::bf16, 1, true, true);
    update_twice(*device, *store, nullptr);
  }
  for (std::size_t i = 0; i < muon.params().size(); ++i) {
    SCOPED_TRACE(muon.params()[i].name);
    const bool same = muon.params()[i].kind != ParamKind::muon;
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
  store.add("w", {4, 1}, Init::constant(1), ParamKind::muon);
  store.allocate(*device, DType::f64, 1, true, false);
  const double gradient[] = {3, 0, 4, 0};
  device->upload(store.gradients().slice(0, {4}), gradient);
  TrainConfig train;
  train.muon_weight_decay = 0.125;
  StepScalars step{.muon_learning_rate = 0.0625f, .momentum = 0.5f};
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

TEST(MuonUpdates, AreTheSameBitsOnAnyNumberOfRanksAndInPieces) {
  for (const int ranks : {2, 3, 4})
    for (const int64_t least : {1, 100, 0}) {
      SCOPED_TRACE(str(ranks, " ranks, ranges of ", least));
      expect_cpu_ranks(ranks, [&](CpuRank& r) {
        ParameterStore alone, shared, cut;
        for (ParameterStore* store : {&alone, &shared, &cut}) {
          add_parameters(*store, ParamKind::muon);
          store->allocate(*r.device, DType::bf16, 1, true, true,
                          store == &cut ? Sharding{r.comm.get(), least} : Sharding{});
          update_twice(*r.device, *store, store == &alone ? nullptr : r.comm.get());
        }
        EXPECT_FALSE(cut.shards().empty());
        const auto place = [&](int block, int matrix) {  // "up" or "down"
          return cut.params()[static_cast<std::size_t>(2 + 3 * block + matrix)].offset;
        };
        for (const int matrix : {0, 1})  // blocks are alike, or ranks could not share them
          EXPECT_EQ(place(1, matrix) - place(0, matrix), place(2, matrix) - place(1, matrix));
        for (std::size_t i = 0; i < alone.params().size(); ++i) {
          SCOPED_TRACE(alone.params()[i].name);
          const auto weights = [&](const ParameterStore& s) {
            return to_host(*r.device, s.var({static_cast<int32_t>(i)}).value);
          };
          EXPECT_EQ(weights(shared), weights(alone));
          EXPECT_EQ(weights(cut), weights(alone));
          const std::vector<double> m = values_of(*r.device, alone, alone.m(), i);
          EXPECT_EQ(values_of(*r.device, shared, shared.m(), i), m);
          EXPECT_EQ(values_of(*r.device, cut, cut.m(), i), m);
        }
      });
    }
}

class MuonTraining : public RankRuns {
 protected:
  static std::vector<std::string> muon(std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"train.optimizer=muon", "train.batch=6"});
    return with(overrides);
  }
};

TEST_F(MuonTraining, LossFallsAndResumesToTheSameBytes) {
  EXPECT_EQ(run("whole", 1, muon({})), "");
  EXPECT_EQ(run("parts", 1, muon({}), {.max_steps = 9}), "");
  EXPECT_CONTAINS(run("parts", 1, muon({"train.optimizer=adamw"}), {.resume = ""}),
                  "train.optimizer: muon in the checkpoint, adamw now");
  EXPECT_EQ(run("parts", 1, muon({}), {.resume = ""}), "");
  EXPECT_TRUE(read_file(latest("parts")) == read_file(latest("whole")));
  EXPECT_LT(of("whole", "loss").back(), of("whole", "loss").front() - 0.5);
}

TEST_F(MuonTraining, RanksShareIt) {
  const auto few = muon({"train.steps=8"});
  EXPECT_EQ(run("one", 1, few), "");
  for (const int ranks : {2, 3}) {
    const std::string whole = str("whole", ranks), again = str("again", ranks),
                      pieces = str("pieces", ranks);
    EXPECT_EQ(run(whole, ranks, few), "") << "weights are compared before they are saved";
    EXPECT_EQ(run(again, ranks, few), "");
    EXPECT_EQ(run(pieces, ranks, muon({"train.steps=8", "train.shard_optimizer=true"})), "");
    expect_same_latest(again, whole);
    expect_same_latest(pieces, whole);
    expect_near_series(whole, "one", "loss", 1e-3);
  }
}
}  // namespace
}  // namespace weft
