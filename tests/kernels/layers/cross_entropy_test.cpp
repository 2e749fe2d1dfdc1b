// SPDX-License-Identifier: MIT
// Cross-entropy: values, gradients, ignored rows, large logits.
#include "kernels/layers/cross_entropy.h"

#include "tests/testing.h"

#include <cmath>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
struct CrossEntropyData {
  int64_t n, v;
  std::vector<double> logits, loss, lse, dloss, dlogits;
  std::vector<int32_t> targets;

  CrossEntropyData(int64_t rows, int64_t vocab)
      : n(rows),
        v(vocab),
        logits(normals(n * v, 1, 2)),
        loss(n),
        lse(n),
        dloss(normals(n, 2)),
        dlogits(normals(n * v, 3)) {
    for (int64_t i = 0; i < n; ++i)
      targets.push_back(i % 3 == 2 ? -1 : static_cast<int32_t>((i * 7) % v));
  }

  double objective() {
    run(queue, CrossEntropyForward{view_of(loss, {n}), view_of(lse, {n}), view_of(logits, {n, v}),
                                   view_of(targets, {n})});
    return inner_product(loss, dloss);
  }

  void backward(bool accumulate) {
    run(queue, CrossEntropyBackward{{view_of(dlogits, {n, v}), accumulate},
                                    view_of(dloss, {n}),
                                    view_of(lse, {n}),
                                    view_of(logits, {n, v}),
                                    view_of(targets, {n})});
  }
};

TEST(CrossEntropy, IsMinusTheLogProbability) {
  CrossEntropyData d(7, 5);
  d.objective();
  for (int64_t n = 0; n < 7; ++n) {
    double sum = 0;
    for (int64_t v = 0; v < 5; ++v) sum += std::exp(d.logits[n * 5 + v]);
    EXPECT_NEAR(d.lse[n], std::log(sum), 1e-14);
    const double want = d.targets[n] < 0 ? 0 : std::log(sum) - d.logits[n * 5 + d.targets[n]];
    EXPECT_NEAR(d.loss[n], want, 1e-14);
  }
}

TEST(CrossEntropy, BackwardIsTheGradient) {
  for (const int64_t v : {1, 5, 40}) {
    CrossEntropyData d(7, v);
    d.objective();
    d.backward(false);
    expect_gradient(
        d.logits, d.dlogits, [&] { return d.objective(); }, "dlogits");
  }
}

TEST(CrossEntropy, BackwardAddsWhenAsked) {
  CrossEntropyData stored(7, 9), added(7, 9);
  const std::vector<double> before = added.dlogits;
  stored.objective();
  stored.backward(false);
  added.objective();
  added.backward(true);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(added.dlogits[i], before[i] + stored.dlogits[i], 1e-14);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  std::vector<float> logits = {1000, 999, -1000, 500, 500, 500}, loss(2), lse(2);
  std::vector<int32_t> targets = {1, 2};
  run(queue, CrossEntropyForward{view_of(loss, {2}), view_of(lse, {2}), view_of(logits, {2, 3}),
                                 view_of(targets, {2})});
  EXPECT_NEAR(loss[0], std::log1p(std::exp(1.0)), 1e-4);
  EXPECT_NEAR(loss[1], std::log(3.0), 1e-4);
}
}  // namespace
}  // namespace weft
