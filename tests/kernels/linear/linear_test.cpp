// SPDX-License-Identifier: MIT
// Affine map: the loops against central differences, OpenBLAS against the loops, rows independent
// of their number.
#include "kernels/linear/linear.h"

#include "tests/testing.h"

#include <array>
#include <cstddef>
#include <vector>

namespace weft {
namespace {
template <class T>
struct Data {
  using W = wide_t<T>;
  int64_t n, k, m;
  std::vector<T> x, w, b, y, dy, dx;
  std::vector<W> dw, db;

  Data(int64_t rows, int64_t inner, int64_t cols)
      : n(rows),
        k(inner),
        m(cols),
        x(converted<T>(normals(n * k, 1))),
        w(converted<T>(normals(m * k, 2))),
        b(converted<T>(normals(m, 3))),
        y(static_cast<std::size_t>(n * m)),
        dy(converted<T>(normals(n * m, 4))),
        dx(converted<T>(normals(n * k, 5))),
        dw(converted<W>(normals(m * k, 6))),
        db(converted<W>(normals(m, 7))) {}

  LinearForward forward(bool batch_invariant = false) {
    return {view_of(y, {n, m}), view_of(x, {n, k}), view_of(w, {m, k}), view_of(b, {m}),
            batch_invariant};
  }

  LinearBackward backward(bool accumulate) {
    return {{view_of(dx, {n, k}), accumulate},
            {view_of(dw, {m, k}), accumulate},
            {view_of(db, {m}), accumulate},
            view_of(dy, {n, m}),
            view_of(x, {n, k}),
            view_of(w, {m, k})};
  }
};

TEST(Linear, IsTheAffineMap) {
  Data<double> d(2, 3, 2);
  run(queue, d.forward());
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t m = 0; m < 2; ++m) {
      const double y = d.x[n * 3] * d.w[m * 3] + d.x[n * 3 + 1] * d.w[m * 3 + 1] +
                       d.x[n * 3 + 2] * d.w[m * 3 + 2] + d.b[m];
      EXPECT_NEAR(d.y[n * 2 + m], y, 1e-14);
    }
  }
}

TEST(Linear, BackwardIsTheGradient) {
  Data<double> d(5, 7, 4);
  run(queue, d.backward(false));
  const auto objective = [&] {
    run(queue, d.forward());
    return inner_product(d.y, d.dy);
  };
  expect_gradient(d.x, d.dx, objective, "dx");
  expect_gradient(d.w, d.dw, objective, "dw");
  expect_gradient(d.b, d.db, objective, "db");
}

template <class T>
void expect_blas_is_the_loops(double tolerance) {
  for (const auto& [n, k, m] :
       {std::array<int64_t, 3>{1, 1, 1}, {31, 33, 65}, {64, 257, 12}, {130, 40, 96}}) {
    for (const bool accumulate : {false, true}) {
      Data<T> blas(n, k, m), loops(n, k, m);
      run(queue, blas.forward());
      linear_forward_loops(loops.forward());
      expect_near(converted<double>(blas.y), converted<double>(loops.y), tolerance, "y");
      run(queue, blas.backward(accumulate));
      linear_backward_loops(loops.backward(accumulate));
      expect_near(converted<double>(blas.dx), converted<double>(loops.dx), tolerance, "dx");
      expect_near(converted<double>(blas.dw), converted<double>(loops.dw), 1e-5, "dw");
      expect_near(converted<double>(blas.db), converted<double>(loops.db), 1e-5, "db");
    }
  }
}

TEST(Linear, BlasIsTheLoopsInF32) { expect_blas_is_the_loops<float>(1e-5); }

TEST(Linear, BlasIsTheLoopsInF16) { expect_blas_is_the_loops<f16>(2e-3); }

TEST(Linear, BlasIsTheLoopsInBf16) { expect_blas_is_the_loops<bf16>(1.6e-2); }

TEST(Linear, BatchInvariantRowsDoNotDependOnTheirNumber) {
  Data<float> whole(9, 100, 33);
  run(queue, whole.forward(true));
  for (int64_t n = 0; n < 9; ++n) {
    Data<float> one(1, 100, 33);
    one.w = whole.w;
    one.b = whole.b;
    one.x.assign(whole.x.begin() + n * 100, whole.x.begin() + (n + 1) * 100);
    run(queue, one.forward(true));
    EXPECT_EQ(one.y, std::vector<float>(whole.y.begin() + n * 33, whole.y.begin() + (n + 1) * 33));
  }
}

TEST(Linear, NoRowsMeansNoGradient) {
  Data<float> d(0, 4, 3);
  run(queue, d.forward());
  run(queue, d.backward(false));
  EXPECT_EQ(d.dw, std::vector<float>(12, 0.0f));
  EXPECT_EQ(d.db, std::vector<float>(3, 0.0f));
}

TEST(Linear, WrongShapesAreErrors) {
  Data<float> d(3, 4, 5), other(4, 5, 6);
  LinearForward forward = d.forward();
  forward.b = view_of(other.b, {6});
  EXPECT_THROW(run(queue, forward), Error);
  forward = d.forward();
  forward.w = view_of(other.w, {6, 5});
  EXPECT_THROW(run(queue, forward), Error);
  LinearBackward backward = d.backward(false);
  backward.dy = view_of(other.dy, {4, 6});
  EXPECT_THROW(run(queue, backward), Error);
  backward = d.backward(false);
  backward.dw.view = view_of(other.dw, {6, 5});
  EXPECT_THROW(run(queue, backward), Error);
}
}  // namespace
}  // namespace weft
