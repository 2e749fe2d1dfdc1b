// SPDX-License-Identifier: MIT
// AdamW against its formula, written out for one element at a time.
#include "kernels/optimizer/adamw.h"

#include "tests/testing.h"

#include <cmath>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
struct Data {
  static constexpr int64_t n = 9000, decayed = 5000;  // neither is a whole number of pieces
  std::vector<double> master = normals(n, 1), m = normals(n, 2, 0.1), v = normals(n, 3, 0.1),
                      ema = normals(n, 4);
  std::vector<double> gradients = normals(n, 5);
  std::vector<bf16> compute = std::vector<bf16>(n);
  StepScalars step;
  StepResults results;

  Data() {
    for (double& x : v) x *= x;
    step.learning_rate = 0.01f;
    step.beta1_correction = 0.271f;
    step.beta2_correction = 0.1426f;
    step.ema_decay = 0.75f;
    results.update_scale = 0.5f;
  }

  void update() {
    AdamWUpdate k;
    k.master = view_of(master, {n});
    k.m = view_of(m, {n});
    k.v = view_of(v, {n});
    k.ema = view_of(ema, {n});
    k.compute = view_of(compute, {n});
    k.gradients = view_of(gradients, {n});
    k.decayed = decayed;
    k.weight_decay = 0.1;
    k.step = &step;
    k.results = &results;
    run(queue, k);
  }
};

TEST(AdamW, IsTheFormula) {
  Data d;
  const Data before = d;
  d.update();
  for (std::size_t i : {0, 1, 4095, 4096, 4999, 5000, 8191, 8999}) {
    const double g = 0.5 * before.gradients[i];
    const double m = 0.9 * before.m[i] + 0.1 * g, v = 0.95 * before.v[i] + 0.05 * g * g;
    const double direction =
        (m / d.step.beta1_correction) / (std::sqrt(v / d.step.beta2_correction) + 1e-8);
    const double decay = i < 5000 ? 0.1 : 0;
    const double p =
        before.master[i] - d.step.learning_rate * (direction + decay * before.master[i]);
    EXPECT_NEAR(d.m[i], m, 1e-14) << i;
    EXPECT_NEAR(d.v[i], v, 1e-14) << i;
    EXPECT_NEAR(d.master[i], p, 1e-14) << i;
    EXPECT_NEAR(d.ema[i], 0.75 * before.ema[i] + 0.25 * p, 1e-14) << i;
    EXPECT_EQ(d.compute[i].bits, bf16(static_cast<float>(p)).bits) << i;
  }
}

TEST(AdamW, ChangesNothingWhenTheGradientWasNotFinite) {
  Data d;
  d.results.update_scale = 0;
  d.gradients[3] = NAN;
  const Data before = d;
  d.update();
  EXPECT_EQ(d.master, before.master);
  EXPECT_EQ(d.m, before.m);
  EXPECT_EQ(d.v, before.v);
  EXPECT_EQ(d.ema, before.ema);
}
}  // namespace
}  // namespace weft
