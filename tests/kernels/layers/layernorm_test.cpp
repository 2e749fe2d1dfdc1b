// SPDX-License-Identifier: MIT
// Layer normalisation: its definition, its gradients, and that the number of threads has no part in
// the result.
#include "kernels/layers/layernorm.h"

#include "tests/testing.h"

#include <cstddef>
#include <omp.h>
#include <string>
#include <vector>

namespace weft {
namespace {
struct LayerNormData {
  int64_t n, c;
  std::vector<double> x, w, b, y, mean, rstd, dy, dx, dw, db;

  LayerNormData(int64_t rows, int64_t cols)
      : n(rows),
        c(cols),
        x(normals(n * c, 1, 2)),
        w(normals(c, 2)),
        b(normals(c, 3)),
        y(x.size()),
        mean(n),
        rstd(n),
        dy(normals(n * c, 4)),
        dx(normals(n * c, 5)),
        dw(normals(c, 6)),
        db(normals(c, 7)) {}

  double objective() {
    run(queue, LayerNormForward{view_of(y, {n, c}), view_of(mean, {n}), view_of(rstd, {n}),
                                view_of(x, {n, c}), view_of(w, {c}), view_of(b, {c}), 1e-5});
    return inner_product(y, dy);
  }

  void backward(bool accumulate) {
    run(queue, LayerNormBackward{{view_of(dx, {n, c}), accumulate},
                                 {view_of(dw, {c}), accumulate},
                                 {view_of(db, {c}), accumulate},
                                 view_of(dy, {n, c}),
                                 view_of(x, {n, c}),
                                 view_of(mean, {n}),
                                 view_of(rstd, {n}),
                                 view_of(w, {c})});
  }
};

TEST(LayerNorm, RowsHaveMeanZeroAndVarianceOne) {
  LayerNormData d(5, 37);
  d.w.assign(37, 1.0);
  d.b.assign(37, 0.0);
  d.objective();
  for (int64_t n = 0; n < d.n; ++n) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < d.c; ++c) {
      sum += d.y[n * d.c + c];
      squares += d.y[n * d.c + c] * d.y[n * d.c + c];
    }
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_NEAR(squares / 37, 1, 1e-5);
  }
}

TEST(LayerNorm, BackwardIsTheGradient) {
  for (const int64_t c : {2, 7, 33, 70}) {
    LayerNormData d(3, c);
    d.objective();
    d.backward(false);
    const auto objective = [&] { return d.objective(); };
    expect_gradient(d.x, d.dx, objective, "dx");
    expect_gradient(d.w, d.dw, objective, "dw");
    expect_gradient(d.b, d.db, objective, "db");
  }
}

TEST(LayerNorm, BackwardAddsWhenAsked) {
  LayerNormData stored(4, 9), added(4, 9);
  const std::vector<double> dx = added.dx, dw = added.dw;
  stored.objective();
  stored.backward(false);
  added.objective();
  added.backward(true);
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(added.dx[i], dx[i] + stored.dx[i], 1e-12);
  for (std::size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(added.dw[i], dw[i] + stored.dw[i], 1e-12);
}

TEST(LayerNorm, AnyNumberOfThreadsGivesTheSameBits) {
  const int threads = omp_get_max_threads();
  std::vector<std::vector<double>> results;
  for (const int count : {1, 2, 3}) {
    omp_set_num_threads(count);
    LayerNormData d(200, 130);
    d.objective();
    d.backward(false);
    d.y.insert(d.y.end(), d.dx.begin(), d.dx.end());
    d.y.insert(d.y.end(), d.dw.begin(), d.dw.end());
    results.push_back(d.y);
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(LayerNorm, SaysWhichShapeIsWrong) {
  LayerNormData d(3, 8);
  std::vector<double> short_w(7);
  LayerNormForward k{view_of(d.y, {3, 8}),
                     view_of(d.mean, {3}),
                     view_of(d.rstd, {3}),
                     view_of(d.x, {3, 8}),
                     view_of(short_w, {7}),
                     view_of(d.b, {8}),
                     1e-5};
  try {
    run(queue, k);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("layernorm_forward: w must hold 8 elements, got (7)"),
              std::string::npos)
        << e.what();
  }
}
}  // namespace
}  // namespace weft
