// SPDX-License-Identifier: MIT
// Models that are told of each sequence: conditions name rows of the start table, positions follow
// what was moved.
#include "models/sparse_transformer.h"
#include "tests/models/model_testing.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace weft {
namespace {
// Images of 2 x 3 with 3 channels: told of a colour order (rows 0 to 5) and of a reversal (rows 6,
// 7).
Config told_config() {
  Config config = small_config({"local", 5, 1, 1});
  config.model.position_axes = {2, 3, 3};
  config.augment.color = config.augment.reversal = true;
  return config;
}

struct ToldModel : SmallModel {
  using SmallModel::SmallModel;

  Tensor integers(const Shape& shape, const std::vector<double>& values) {
    return engine.tensor(shape, values, DType::i32);
  }

  std::vector<double> logits(const Sequences& s) {
    Ctx ctx = engine.ctx();
    return engine.host(model->logits(ctx, s));
  }

  const ParamInfo& param(const std::string& name) const {
    return *std::find_if(store.params().begin(), store.params().end(),
                         [&](const ParamInfo& p) { return p.name == name; });
  }
};

TEST(Conditions, TheStartTableHasARowForEachValue) {
  ToldModel told(told_config());
  EXPECT_EQ(told.param("start").shape, (Shape{8, 16}));
  Config silent = told_config();
  silent.augment.conditional = false;
  EXPECT_EQ(ToldModel(silent).param("start").shape, (Shape{16}));
}

TEST(Conditions, ChangeTheLogits) {
  ToldModel told(told_config());
  const Tensor tokens = told.tokens(2, 18);
  const auto logits = [&](const std::vector<double>& conditions) {
    return told.logits({tokens, {}, {}, told.integers({2, 2}, conditions)});
  };
  const std::vector<double> plain = logits({0, 6, 0, 6}), other = logits({0, 6, 4, 6});
  EXPECT_EQ(plain, logits({0, 6, 0, 6}));
  const auto half = static_cast<std::ptrdiff_t>(plain.size() / 2);
  EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + half, other.begin()))
      << "the first is told the same";
  for (const std::ptrdiff_t row : {0, 3}) {
    const auto first = half + row * 7;
    EXPECT_FALSE(
        std::equal(plain.begin() + first, plain.begin() + first + 7, other.begin() + first))
        << row;
  }
  EXPECT_EQ(logits({6, 0, 6, 0}), plain) << "a sum";
}

TEST(Conditions, AWrongNumberIsRefused) {
  ToldModel told(told_config());
  Config silent = told_config();
  silent.augment.conditional = false;
  ToldModel plain(silent);
  const Tensor tokens = told.tokens(2, 18), two = told.integers({2, 2}, {0, 6, 0, 6}),
               one = told.integers({2, 1}, {0, 6});
  const auto error = [&](ToldModel& model, const Tensor& conditions) {
    return error_of([&] { model.logits({tokens, {}, {}, conditions}); });
  };
  EXPECT_EQ(error(told, two), "");
  EXPECT_CONTAINS(error(told, {}),
                  "this model is told 2 things about a sequence (conditions (B, 2))");
  EXPECT_CONTAINS(error(told, one), "this model is told 2 things");
  EXPECT_EQ(error(plain, {}), "");
  EXPECT_CONTAINS(error(plain, two), "this model is told 0 things");
  EXPECT_NE(error(told, told.integers({1, 2}, {0, 6})), "") << "of one sequence, for two";
}

TEST(Conditions, PositionsInOrderAreNoPositions) {
  ToldModel told(told_config());
  const Tensor tokens = told.tokens(1, 18), conditions = told.integers({1, 2}, {1, 7});
  std::vector<double> places(18);
  for (std::size_t i = 0; i < 18; ++i) places[i] = static_cast<double>(i);
  const auto logits = [&] {
    return told.logits({tokens, {}, told.integers({1, 18}, places), conditions});
  };
  const std::vector<double> without = told.logits({tokens, {}, {}, conditions});
  EXPECT_EQ(logits(), without);
  std::reverse(places.begin(), places.end());
  const std::vector<double> reversed = logits();
  EXPECT_NE(reversed, without);
  // Row 0 has no position; row 1 has that of token 0.
  EXPECT_TRUE(std::equal(without.begin(), without.begin() + 7, reversed.begin()));
  EXPECT_FALSE(std::equal(without.begin() + 7, without.begin() + 14, reversed.begin() + 7));
}

TEST(Conditions, RecomputeGivesTheSameBits) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    std::map<Recompute, std::vector<double>> results;
    for (const Recompute recompute : kEveryRecompute) {
      Config config = told_config();
      config.model.dropout = 0.3;
      config.model.embedding_dropout = 0.1;
      config.train.recompute = recompute;
      ToldModel told(config, compute);
      told.engine.set({.seed = 21, .draw = 2});
      std::vector<double> places(2 * 18);
      for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<double>(i * 7 % 18);
      told.differentiate({told.tokens(2, 18),
                          {},
                          told.integers({2, 18}, places),
                          told.integers({2, 2}, {2, 6, 5, 7})},
                         true);
      results[recompute] = told.engine.host(told.store.gradients());
    }
    EXPECT_EQ(results[Recompute::none], results[Recompute::attention]);
    EXPECT_EQ(results[Recompute::none], results[Recompute::block]);
  }
}

TEST(Conditions, GradientsOfTheStartTable) {
  ToldModel told(told_config(), DType::f64);
  std::vector<double> places(2 * 18);
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<double>(i * 5 % 18);
  const Sequences s(told.tokens(2, 18), {}, told.integers({2, 18}, places),
                    told.integers({2, 2}, {2, 6, 5, 6}));
  told.differentiate(s);
  auto* master = told.store.master().view().as<double>();
  for (const std::string name : {"start", "position.0", "position.2"}) {
    const ParamInfo& p = told.param(name);
    const std::vector<double> got =
        told.engine.host(told.store.gradients().slice(p.offset, p.shape));
    std::vector<double> want;
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      constexpr double h = 1e-5;
      const double kept = master[i];
      master[i] = kept + h;
      const double up = told.loss(s);
      master[i] = kept - h;
      const double down = told.loss(s);
      master[i] = kept;
      want.push_back((up - down) / (2 * h));
    }
    expect_near(got, want, 1e-6, name);
    if (name != "start") continue;
    for (const int64_t row : {0, 1, 3, 4, 7}) {
      for (int64_t c = 0; c < 16; ++c)
        EXPECT_EQ(got[static_cast<std::size_t>(row * 16 + c)], 0) << row;
    }
  }
}
}  // namespace
}  // namespace weft
