// SPDX-License-Identifier: MIT
// train.optimizer muon: what an update changes, and that breaks change nothing.
#include "tests/train/trainer/muon.h"

#include "src/config/config.h"
#include "src/optimizer.h"
#include "tests/testing.h"
#include "tests/train/runs.h"
#include "train/trainer/trainer.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
TEST(MuonUpdates, LeaveAllOtherParametersToAdamW) {
  const auto device = make_device("cpu");
  ParameterStore adamw, muon;
  add_parameters(adamw, ParamKind::compute);
  add_parameters(muon, ParamKind::muon);
  for (ParameterStore* store : {&adamw, &muon}) {
    store->allocate(*device, DType::bf16, 1, true, true);
    update_twice(*device, *store);
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
}  // namespace
}  // namespace weft
