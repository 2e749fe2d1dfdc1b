// SPDX-License-Identifier: MIT
// Embeddings: the shift by one, positions in mixed radix, gradients.
#include "kernels/layers/embedding.h"

#include "src/device.h"
#include "tests/cases/compare.h"
#include "tests/cases/kernel_cases.h"
#include "tests/testing.h"

#include <algorithm>
#include <cstddef>
#include <omp.h>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Two sequences of five tokens out of four; positions as (p / 3, p % 3).
struct EmbeddingData {
  static constexpr int64_t b = 2, t = 5, v = 4, c = 3;
  std::vector<int32_t> tokens = {0, 3, 3, 1, 2, 1, 1, 0, 3, 3};
  std::vector<int32_t> offsets, positions, conditions;  // of the two sequences, or empty
  std::vector<double> table = normals(v * c, 1), start = normals(c, 2), outer = normals(2 * c, 3),
                      inner = normals(3 * c, 4);
  std::vector<double> previous = normals(v * c, 10), dprevious = normals(v * c, 11);
  bool looks_back = false;
  std::vector<double> y = std::vector<double>(b * t * c), dy = normals(b * t * c, 5);
  std::vector<double> dtable = normals(v * c, 6), dstart = normals(c, 7),
                      douter = normals(2 * c, 8), dinner = normals(3 * c, 9);

  // Three conditions for each sequence, one of them twice, of a start table of five rows; none
  // names row 3.
  void tell() {
    conditions = {1, 4, 2, 2, 0, 2};
    start = normals(5 * c, 2);
    dstart = normals(5 * c, 7);
  }

  // Places of tokens in any order.
  void move() { positions = {5, 0, 2, 2, 1, 4, 3, 2, 1, 0}; }

  std::vector<int64_t> start_shape() const {
    return conditions.empty() ? std::vector<int64_t>{c} : std::vector<int64_t>{5, c};
  }

  EmbeddingForward forward() {
    EmbeddingForward k;
    k.y = view_of(y, {b, t, c});
    k.tokens = view_of(tokens, {b, t});
    k.table = view_of(table, {v, c});
    k.start = view_of(start, start_shape());
    if (looks_back) k.previous = view_of(previous, {v, c});
    k.axis[0] = {view_of(outer, {2, c}), 3};
    k.axis[1] = {view_of(inner, {3, c}), 1};
    k.axes = 2;
    add_besides(k);
    return k;
  }

  template <class Kernel>
  void add_besides(Kernel& k) {
    if (!offsets.empty()) k.offsets = view_of(offsets, {b});
    if (!positions.empty()) k.positions = view_of(positions, {b, t});
    if (!conditions.empty()) k.conditions = view_of(conditions, {b, 3});
  }

  EmbeddingBackward backward(bool accumulate) {
    EmbeddingBackward k;
    k.dtable = {view_of(dtable, {v, c}), accumulate};
    k.dstart = {view_of(dstart, start_shape()), accumulate};
    if (looks_back) k.dprevious = {view_of(dprevious, {v, c}), accumulate};
    k.daxis[0] = {view_of(douter, {2, c}), accumulate};
    k.daxis[1] = {view_of(dinner, {3, c}), accumulate};
    k.divisor[0] = 3;
    k.axes = 2;
    k.dy = view_of(dy, {b, t, c});
    k.tokens = view_of(tokens, {b, t});
    add_besides(k);
    return k;
  }
};

void expect_backward_is_the_gradient(EmbeddingData& d) {
  run(queue, d.backward(false));
  const auto objective = [&] {
    run(queue, d.forward());
    return inner_product(d.y, d.dy);
  };
  expect_gradient(d.table, d.dtable, objective, "dtable");
  expect_gradient(d.start, d.dstart, objective, "dstart");
  if (d.looks_back) expect_gradient(d.previous, d.dprevious, objective, "dprevious");
  expect_gradient(d.outer, d.douter, objective, "outer positions");
  expect_gradient(d.inner, d.dinner, objective, "inner positions");
}

TEST(Embedding, RowTIsTheTokenBefore) {
  EmbeddingData d;
  run(queue, d.forward());
  for (int64_t col = 0; col < d.c; ++col) {
    EXPECT_EQ(d.y[col], d.start[col]);
    EXPECT_EQ(d.y[(d.t + 0) * d.c + col], d.start[col]);
    // Row 4 of sequence 0: token 3 (which is 1) at position 3 = (1, 0).
    EXPECT_NEAR(d.y[4 * d.c + col], d.table[1 * d.c + col] + d.outer[1 * d.c + col] + d.inner[col],
                1e-15);
    // Row 3 of sequence 1: token 2 (which is 0) at position 2 = (0, 2).
    EXPECT_NEAR(d.y[(d.t + 3) * d.c + col], d.table[col] + d.outer[col] + d.inner[2 * d.c + col],
                1e-15);
  }
}

TEST(Embedding, RowTHasTheTokenBeforeThatFromItsOwnTable) {
  EmbeddingData plain, both;
  both.looks_back = true;
  run(queue, plain.forward());
  run(queue, both.forward());
  for (int64_t row = 0; row < plain.b * plain.t; ++row)
    for (int64_t col = 0; col < plain.c; ++col) {
      const auto of = [&](int64_t token) {
        return both.previous[static_cast<std::size_t>(token * both.c + col)];
      };
      const double more =
          row % plain.t < 2 ? 0 : of(both.tokens[static_cast<std::size_t>(row - 2)]);
      EXPECT_NEAR(both.y[row * both.c + col], plain.y[row * plain.c + col] + more, 1e-15) << row;
    }
  expect_backward_is_the_gradient(both);
}

TEST(Embedding, OneRowAtATimeIsTheWhole) {
  EmbeddingData d;
  d.looks_back = true;
  run(queue, d.forward());
  for (int64_t row = 0; row < d.t; ++row) {
    std::vector<double> one(static_cast<std::size_t>(d.b * d.c));
    EmbeddingForward k = d.forward();
    k.y = view_of(one, {d.b, 1, d.c});
    k.first = row;
    run(queue, k);
    for (int64_t b = 0; b < d.b; ++b) {
      for (int64_t col = 0; col < d.c; ++col)
        EXPECT_EQ(one[b * d.c + col], d.y[(b * d.t + row) * d.c + col]);
    }
  }
}

TEST(Embedding, OffsetsMoveThePositions) {
  EmbeddingData d;
  d.offsets = {0, 4};
  run(queue, d.forward());
  for (int64_t col = 0; col < d.c; ++col) {
    EXPECT_EQ(d.y[(d.t + 0) * d.c + col], d.start[col]) << "the start vector has no position";
    // Row 1 of sequence 0: token 0 (which is 0) at position 0 = (0, 0).
    EXPECT_NEAR(d.y[1 * d.c + col], d.table[col] + d.outer[col] + d.inner[col], 1e-15);
    // Row 2 of sequence 1: token 1 (which is 1) at position 5 = (1, 2).
    EXPECT_NEAR(d.y[(d.t + 2) * d.c + col],
                d.table[1 * d.c + col] + d.outer[1 * d.c + col] + d.inner[2 * d.c + col], 1e-15);
  }
}

TEST(Embedding, BackwardWithOffsetsIsTheGradient) {
  EmbeddingData d;
  d.offsets = {3, 1};
  expect_backward_is_the_gradient(d);
}

TEST(Embedding, PositionsMoveEachToken) {
  EmbeddingData d;
  d.move();
  run(queue, d.forward());
  for (int64_t col = 0; col < d.c; ++col) {
    // Row 1 of sequence 0: token 0 (which is 0) at place 5 = (1, 2).
    EXPECT_NEAR(d.y[1 * d.c + col], d.table[col] + d.outer[1 * d.c + col] + d.inner[2 * d.c + col],
                1e-15);
    // Row 2 of sequence 1: token 1 (which is 1) at place 3 = (1, 0).
    EXPECT_NEAR(d.y[(d.t + 2) * d.c + col],
                d.table[1 * d.c + col] + d.outer[1 * d.c + col] + d.inner[col], 1e-15);
  }
  // Places in order are what they are without.
  EmbeddingData plain, ordered;
  ordered.positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  run(queue, plain.forward());
  run(queue, ordered.forward());
  EXPECT_EQ(ordered.y, plain.y);
  run(queue, plain.backward(false));
  run(queue, ordered.backward(false));
  EXPECT_EQ(ordered.douter, plain.douter);
  EXPECT_EQ(ordered.dinner, plain.dinner);
}

TEST(Embedding, ConditionsAreSummedInTheFirstRow) {
  EmbeddingData plain, told;
  told.tell();
  run(queue, plain.forward());
  run(queue, told.forward());
  for (int64_t col = 0; col < told.c; ++col) {
    const auto start = [&](int64_t row) {
      return told.start[static_cast<std::size_t>(row * told.c + col)];
    };
    EXPECT_NEAR(told.y[col], start(1) + start(4) + start(2), 1e-15);
    EXPECT_NEAR(told.y[told.t * told.c + col], start(2) + start(0) + start(2), 1e-15)
        << "named twice, added twice";
  }
  for (const int64_t b : {0, 1}) {
    const int64_t second = (b * told.t + 1) * told.c, end = (b + 1) * told.t * told.c;
    EXPECT_TRUE(std::equal(told.y.begin() + second, told.y.begin() + end, plain.y.begin() + second))
        << "the other rows of sequence " << b;
  }
}

TEST(Embedding, BackwardWithPositionsAndConditionsIsTheGradient) {
  EmbeddingData d;
  d.move();
  d.tell();
  expect_backward_is_the_gradient(d);
}

TEST(Embedding, StartRowsThatNoneNamesGetNothing) {
  EmbeddingData stored, added;
  stored.tell();
  added.tell();
  const std::vector<double> before = added.dstart;
  run(queue, stored.backward(false));
  run(queue, added.backward(true));
  for (int64_t i = 3 * stored.c; i < 4 * stored.c; ++i) {
    EXPECT_EQ(stored.dstart[i], 0);
    EXPECT_EQ(added.dstart[i], before[i]);
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(added.dstart[i], before[i] + stored.dstart[i], 1e-14);
  }
}

TEST(Embedding, RefusesWhatDoesNotFitTogether) {
  EmbeddingData d;
  d.move();
  d.offsets = {0, 1};
  EXPECT_THROW(run(queue, d.forward()), Error) << "places twice over";
  EXPECT_THROW(run(queue, d.backward(false)), Error);
  EmbeddingData told;
  told.tell();
  EmbeddingForward k = told.forward();
  k.conditions = view_of(told.conditions, {3, 2});
  EXPECT_THROW(run(queue, k), Error) << "conditions of three sequences";
  k = told.forward();
  k.conditions = {};
  EXPECT_THROW(run(queue, k), Error) << "a table of start vectors, and none is named";
  EmbeddingData moved;
  moved.move();
  k = moved.forward();
  k.positions = view_of(moved.positions, {5, 2});
  EXPECT_THROW(run(queue, k), Error);
}

TEST(Embedding, BackwardIsTheGradient) {
  EmbeddingData d;
  expect_backward_is_the_gradient(d);
  EXPECT_EQ(std::vector<double>(d.dtable.begin() + 6, d.dtable.begin() + 9),
            std::vector<double>(3, 0.0))
      << "token 2 is last";
}

TEST(Embedding, BackwardAddsWhenAsked) {
  EmbeddingData stored, added;
  const std::vector<double> before = added.dtable;
  run(queue, stored.backward(false));
  run(queue, added.backward(true));
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(added.dtable[i], before[i] + stored.dtable[i], 1e-14);
}

// The row of a position that comes round 349,525 times: added one after the other, terms of 0.1
// lose 0.3 % of their sum.
TEST(Embedding, LongSumsKeepTheirDigits) {
  const int64_t t = 1 << 20, rows = 3;
  std::vector<int32_t> tokens(t);
  std::vector<float> dy(t, 0.1f), dposition(rows);
  EmbeddingBackward k;
  k.daxis[0] = {view_of(dposition, {rows, 1}), false};
  k.axes = 1;
  k.dy = view_of(dy, {1, t, 1});
  k.tokens = view_of(tokens, {1, t});
  run(queue, k);
  for (const float sum : dposition) EXPECT_NEAR(sum / (349525 * double{0.1f}), 1, 2e-5);
}

TEST(Embedding, AnyNumberOfThreadsGivesTheSameBits) {
  const int64_t t = 1500, v = 2, c = 130;
  std::vector<int32_t> tokens(t);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 5 == 0);
  const std::vector<double> values = normals(t * c, 1);
  std::vector<float> dy(values.begin(), values.end());
  EmbeddingBackward k;
  k.dy = view_of(dy, {1, t, c});
  k.tokens = view_of(tokens, {1, t});
  const int threads = omp_get_max_threads();
  std::vector<std::vector<float>> results;
  for (const int count : {1, 2, 3}) {
    omp_set_num_threads(count);
    k.dtable = {view_of(results.emplace_back(static_cast<std::size_t>(v * c)), {v, c}), false};
    run(queue, k);
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

#ifdef WEFT_CUDA
// 2^20 tokens of text with three axes of positions: a token's row takes 256 terms, that of a
// position 1024 or 349,525.
struct Million {
  static constexpr int64_t t = 1 << 20, c = 24, tables = 4;
  static constexpr int64_t rows[tables] = {4096, 1024, 1024, 3}, divisor[tables] = {1, 1024, 1, 2};
  std::vector<int32_t> tokens = std::vector<int32_t>(t);

  Million() {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(static_cast<uint32_t>(i) * 2654435761u >> 20);
  }

  template <class T>
  static std::vector<T> dy() {  // the same in every type
    const std::vector<double> values = normals(t * c, 5);
    const std::vector<float> rounded(values.begin(), values.end());
    return std::vector<T>(rounded.begin(), rounded.end());
  }

  // Gradients of the token table, unless `positions_alone`, and of the position tables.
  static EmbeddingBackward kernel(const TensorView (&gradient)[tables], const TensorView& dy,
                                  const TensorView& tokens, bool positions_alone) {
    EmbeddingBackward k;
    if (!positions_alone) k.dtable = {gradient[0], false};
    k.axes = tables - 1;
    for (int a = 0; a < k.axes; ++a) {
      k.daxis[a] = {gradient[a + 1], false};
      k.divisor[a] = divisor[a + 1];
    }
    k.dy = dy;
    k.tokens = tokens;
    return k;
  }

  template <class T>
  std::vector<std::vector<T>> on_cpu() {
    std::vector<std::vector<T>> gradients;
    TensorView views[tables];
    for (int i = 0; i < tables; ++i)
      views[i] =
          view_of(gradients.emplace_back(static_cast<std::size_t>(rows[i] * c)), {rows[i], c});
    std::vector<T> values = dy<T>();
    run(queue, kernel(views, view_of(values, {1, t, c}), view_of(tokens, {1, t}), false));
    return gradients;
  }
};

// The rule of the kernel table (verify() in tests/cases/kernel_cases.h). With so small a
// workspace that the columns of a position table are taken eight at a time, the bits are the same.
TEST(CudaEmbedding, GradientsOfAMillionTokens) {
  Million million;
  const auto exact = million.on_cpu<double>();
  const auto plain = million.on_cpu<float>();
  const auto device = make_device("cuda");
  const Tensor dy(*device->pool, {1, million.t, million.c}, DType::f32, "test"),
      tokens(*device->pool, {1, million.t}, DType::i32, "test");
  device->upload(dy, million.dy<float>().data());
  device->upload(tokens, million.tokens.data());
  std::vector<Tensor> gradients;
  TensorView views[Million::tables];
  for (int i = 0; i < Million::tables; ++i)
    views[i] = gradients.emplace_back(*device->pool, Shape{Million::rows[i], Million::c},
                                      DType::f32, "test");
  launch(device->queue, Million::kernel(views, dy, tokens, false));
  std::vector<std::vector<double>> whole;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    whole.push_back(to_host(*device, gradients[i]));
    const std::vector<double> cpu(plain[i].begin(), plain[i].end());
    EXPECT_LE(relative_error(whole[i], exact[i]), 2 * relative_error(cpu, exact[i]) + 2e-6)
        << "table " << i;
  }
  auto& cuda = std::get<CudaQueue>(device->queue);
  const std::size_t workspace = std::exchange(cuda.workspace_bytes, std::size_t{11} << 20);
  launch(device->queue, Million::kernel(views, dy, tokens, true));
  cuda.workspace_bytes = workspace;
  for (std::size_t i = 1; i < gradients.size(); ++i)
    EXPECT_EQ(to_host(*device, gradients[i]), whole[i])
        << "table " << i << ", columns eight at a time";
}
#endif

TEST(Embedding, RowsPastTheEndAreAnError) {
  EmbeddingData d;
  EmbeddingForward k = d.forward();
  k.first = 2;
  EXPECT_THROW(run(queue, k), Error);
}
}  // namespace
}  // namespace weft
