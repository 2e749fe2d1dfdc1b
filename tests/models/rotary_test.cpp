// SPDX-License-Identifier: MIT
// Rotary positions of a model: its table of angles, and where short windows lie.
#include "models/layers.h"
#include "src/config/config.h"
#include "tests/models/model_testing.h"

#include <cmath>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<double> logits_of(SmallModel& small, const Sequences& s) {
  Ctx ctx = small.engine.ctx();
  return small.engine.host(small.model->logits(ctx, s));
}

// With one axis only distances count; with several, an offset moves a window.
TEST(RotaryPositions, OfShortWindows) {
  for (const bool image : {false, true}) {
    SmallModel small(rotary_config({"all", 1, 1, 1},
                                   image ? std::vector<int64_t>{3, 6} : std::vector<int64_t>{18}));
    const Tensor tokens = small.tokens(2, 9), here = small.engine.tensor({2}, {0, 0}, DType::i32),
                 there = small.engine.tensor({2}, {4, 9}, DType::i32);
    const std::vector<double> plain = logits_of(small, tokens);
    EXPECT_EQ(logits_of(small, {tokens, here}), plain);
    EXPECT_EQ(logits_of(small, {tokens, there}) == plain, !image);
    const Tensor places = small.engine.tensor(
        {2, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}, DType::i32);
    EXPECT_EQ(logits_of(small, {tokens, {}, places}), plain);
  }
}

// Pairs are dealt to the axes that are longer than 1; the first axis goes on beyond its size.
TEST(RotaryPositions, AreAnglesOfEachAxis) {
  const auto expect_angles = [](std::vector<int64_t> axes, auto&& angle) {
    const Config config = rotary_config({"all", 1, 1, 1}, std::move(axes));
    const auto device = make_device("cpu");
    const Tensor table = rotary_table(*device, config.model, DType::f64);
    ASSERT_EQ(table.shape(), (Shape{19, 4, 2}));
    const std::vector<double> values = to_host(*device, table);
    for (int t = 0; t < 19; ++t)
      for (int pair = 0; pair < 4; ++pair) {
        EXPECT_NEAR(values[t * 8 + 2 * pair], std::cos(angle(t, pair)), 1e-15);
        EXPECT_NEAR(values[t * 8 + 2 * pair + 1], std::sin(angle(t, pair)), 1e-15);
      }
  };
  expect_angles({4}, [](int t, int pair) { return t * std::pow(30, -pair / 4.0); });
  expect_angles({3, 1, 6}, [](int t, int pair) {
    return (pair < 2 ? t / 6 : t % 6) * (pair % 2 == 0 ? 1 : std::pow(30, -0.5));
  });
  expect_angles({2, 3, 3}, [](int t, int pair) {
    const int of_pair[] = {t / 9, t / 9, t / 3 % 3, t % 3};
    return of_pair[pair] * (pair == 1 ? std::pow(30, -0.5) : 1);
  });
}
}  // namespace
}  // namespace weft
