// SPDX-License-Identifier: MIT
// The table of models, parameter counts of the paper's models, operations a token, the memory plan
// against the pool.
#include "models/model.h"

#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/optimizer/optimizer.h"
#include "tests/models/model_testing.h"

#include <cstddef>
#include <string>

namespace weft {
namespace {
int64_t parameters(const Config& config) {
  const auto device = make_device("cpu");
  ParameterStore store;
  make_model(config, store, *device);
  int64_t sum = 0;
  for (const ParamInfo& p : store.params()) sum += p.size;
  return sum;
}

TEST(Model, ParameterCountsOfThePaper) {
  Config enwik8;
  enwik8.model.layers = 30;
  enwik8.model.width = 512;
  enwik8.model.heads = 8;
  EXPECT_NEAR(static_cast<double>(parameters(enwik8)), 94.9e6, 0.005 * 94.9e6);
  Config cifar;
  cifar.model.layers = 128;
  cifar.model.width = 256;
  cifar.model.heads = 2;
  cifar.model.qk_ratio = 0.5;
  cifar.model.mlp_ratio = 2;
  cifar.model.position_axes = {32, 32, 3};
  EXPECT_NEAR(static_cast<double>(parameters(cifar)), 59.2e6, 0.005 * 59.2e6);
}

TEST(Model, UnknownKindListsWhatExists) {
  Config config = small_config({"all", 1, 1, 1});
  config.model.kind = "sparse";
  const auto device = make_device("cpu");
  ParameterStore store;
  try {
    make_model(config, store, *device);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sparse_transformer"), std::string::npos)
        << error.what();
  }
}

// By hand: width 16, 2 heads of 8, MLP 32, 2 layers, vocabulary 7; dense causal attention over 4
// positions has 10 pairs.
TEST(Model, FlopsByHand) {
  const Config config = small_config({"all", 1, 1, 1});
  const double layer = 16 * (3 * 16) + 16 * 16 + 2 * 16 * 32, attention = 2 * 10 * (8 + 8) / 4.0;
  EXPECT_DOUBLE_EQ(flops_per_token(config.model, 4), 6 * (2 * (layer + attention) + 16 * 7));
}

TEST(Model, FlopsCountEachHeadsPairs) {
  // fixed, blocks of 4, c 1, two sub-blocks: of 8 positions, each sees its block so far (10 + 10
  // pairs) and the four of the second block one summary position.
  Config config = small_config({"fixed", 4, 1, 2});
  config.model.layers = 1;
  const double layer = 16 * (3 * 16) + 16 * 16 + 2 * 16 * 32, attention = 2 * 24 * (8 + 8) / 8.0;
  EXPECT_DOUBLE_EQ(flops_per_token(config.model, 8), 6 * (layer + attention + 16 * 7));
}

TEST(Model, MemoryPlanIsWhatThePoolSees) {
  Config config = small_config({"local", 16, 1, 1});
  config.model.context = 192;
  config.model.position_axes = {12, 16};
  config.model.width = 32;
  config.model.vocab = 40;
  config.model.dropout = 0.1;
  config.model.embedding_dropout = 0.1;
  for (const int64_t layers : {1, 2, 6}) {
    for (const double mlp_ratio : {1.0, 4.0}) {
      for (const Recompute recompute : kEveryRecompute) {
        for (const bool training : {true, false}) {
          SCOPED_TRACE(str(layers, " layers, mlp ", mlp_ratio, ", recompute ", text_of(recompute),
                           ", training ", training));
          config.model.layers = layers;
          config.model.mlp_ratio = mlp_ratio;
          config.train.recompute = recompute;
          config.train.ema_decay = layers == 2 ? 0.99 : 0;
          check_plan(config, 4, training);
        }
      }
    }
  }
  for (const Recompute recompute : kEveryRecompute)
    for (const bool training : {true, false}) {  // angles, and rstd of queries and keys
      config.train.recompute = recompute;
      config.model.positions = PositionCode::learned, config.model.qk_norm = QkNorm::none;
      const double without = check_plan(config, 4, training);
      config.model.positions = PositionCode::rotary, config.model.qk_norm = QkNorm::rms;
      EXPECT_NEAR(check_plan(config, 4, training), without, 1000)
          << text_of(recompute) << ", training " << training;
    }
  config.model.vocab = 700;
  SCOPED_TRACE("large vocabulary");
  check_plan(config, 4, true);
  check_plan(config, 4, false);
}
}  // namespace
}  // namespace weft
