// SPDX-License-Identifier: MIT
// QK-norm and rotary positions against complex numbers; what a rotation keeps; refusals.
#include "kernels/layers/rotary.h"

#include "tests/temp_dir.h"
#include "tests/testing.h"

#include <cmath>
#include <complex>
#include <functional>
#include <vector>

namespace weft {
namespace {
// Two sequences of three rows, two heads of eight features in q and in k, then five columns of v.
struct QkData {
  static constexpr int64_t b = 2, t = 3, heads = 2, size = 8, cols = 2 * heads * size + 5,
                           places = 11;
  std::vector<double> x = normals(b * t * cols, 1), y = x,
                      rstd = std::vector<double>(b * t * 2 * heads),
                      angle = normals(places * size / 2, 2), table;
  std::vector<int32_t> offsets, positions;

  QkData() {
    for (const double a : angle) table.insert(table.end(), {std::cos(a), std::sin(a)});
  }

  QkForward forward(bool norm, bool rotary) {
    QkForward k;
    k.qkv = view_of(y, {b, t, cols});
    k.rstd = view_of(rstd, {b * t, 2 * heads});
    k.heads = heads;
    k.qk_size = size;
    k.form.norm = norm;
    k.form.eps = 0.1;
    if (rotary) k.form.table = view_of(table, {places, size / 2, 2});
    if (!offsets.empty()) k.form.offsets = view_of(offsets, {b});
    if (!positions.empty()) k.form.positions = view_of(positions, {b, t});
    return k;
  }

  // Row n of x as RoFormer's equation 34 has it: pair i is a complex number, multiplied by e^(i
  // angle).
  std::vector<double> want(int64_t n, int64_t place, bool norm, bool rotary) const {
    std::vector<double> row(x.begin() + n * cols, x.begin() + (n + 1) * cols);
    for (int64_t h = 0; h < 2 * heads; ++h) {
      double squares = 0;
      for (int64_t i = 0; i < size; ++i) squares += std::pow(row[h * size + i], 2);
      const double scale = norm ? std::pow(squares / size + 0.1, -0.5) : 1;
      for (int64_t i = 0; i < size; i += 2) {
        std::complex<double> pair(row[h * size + i], row[h * size + i + 1]);
        pair *= std::polar(scale, rotary ? angle[place * size / 2 + i / 2] : 0);
        row[h * size + i] = pair.real(), row[h * size + i + 1] = pair.imag();
      }
    }
    return row;
  }

  void check(const std::vector<int64_t>& of_row, bool norm, bool rotary) {
    y = x;
    run(queue, forward(norm, rotary));
    std::vector<double> all;
    for (int64_t n = 0; n < b * t; ++n) {
      const std::vector<double> row = want(n, of_row[n], norm, rotary);
      all.insert(all.end(), row.begin(), row.end());
    }
    expect_near(y, all, 1e-14, str("norm ", norm, ", rotary ", rotary));
  }
};

TEST(Rotary, IsAProductOfComplexNumbers) {
  QkData d;
  for (const bool norm : {false, true})
    for (const bool rotary : {false, true}) d.check({0, 1, 2, 0, 1, 2}, norm, rotary);
  d.offsets = {4, 9};
  d.check({4, 5, 6, 9, 10, 0}, true, true);  // modulo the places of the table
  d.offsets.clear();
  d.positions = {5, 0, 7, 2, 9, 1};  // of tokens: a row holds the one before, the first none
  d.check({0, 6, 1, 0, 3, 10}, true, true);
}

// In sampling, a row whose number is in memory.
TEST(Rotary, TakesOneRow) {
  QkData d, whole;
  run(queue, whole.forward(true, true));
  const int32_t at = 2;
  std::vector<double> rows;
  for (int64_t i = 0; i < QkData::b; ++i) {
    const auto last = d.x.begin() + (i * QkData::t + at) * QkData::cols;
    rows.insert(rows.end(), last, last + QkData::cols);
  }
  QkForward k = d.forward(true, true);
  k.qkv = view_of(rows, {QkData::b, 1, QkData::cols});
  k.rstd = {};
  k.form.first_at = &at;
  run(queue, k);
  for (int64_t i = 0; i < QkData::cols; ++i) {
    EXPECT_EQ(rows[i], whole.y[at * QkData::cols + i]);
    EXPECT_EQ(rows[QkData::cols + i], whole.y[(QkData::t + at) * QkData::cols + i]);
  }
}

TEST(Rotary, RefusesWhatDoesNotFit) {
  QkData d;
  const auto refused = [&](const std::function<void(QkForward&)>& change) {
    QkForward k = d.forward(true, true);
    change(k);
    return error_of([&] { run(queue, k); });
  };
  EXPECT_CONTAINS(refused([](QkForward& k) { k.qk_size = 12; }), "Dqk a multiple of 8");
  EXPECT_CONTAINS(refused([](QkForward& k) { k.heads = 3; }), "2 H Dqk or more");
  EXPECT_CONTAINS(refused([](QkForward& k) { k.form.table.shape[1] = 3; }), "qk_forward: table");
  d.offsets = {0, 1}, d.positions = {0, 1, 2, 3, 4, 5};
  EXPECT_CONTAINS(refused([](QkForward&) {}), "exclude each other");
}
}  // namespace
}  // namespace weft
