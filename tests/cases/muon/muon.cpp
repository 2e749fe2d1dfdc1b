// SPDX-License-Identifier: MIT
// Muon: matrices wide, tall and square, alone and in batches; those of the text model of 12 layers.
#include "kernels/optimizer/muon/muon.h"

#include "tests/cases/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>
#include <vector>

namespace weft {
namespace {
void momentum(CaseRun& r, int64_t n, float update_scale) {
  r.kernel(MuonMomentum{
      .u = r.output("u", {n}, r.type()),
      .m = r.updated("m", {n}, r.wide_type(), 0.1, 0),
      .gradients = r.wide_input({n}),
      .step = r.step(),
      .results = r.results(update_scale, false),
  });
}

// Rows, or columns where there are fewer, that are orthogonal to each other: cosines. The others of
// `count` times `period` elements are zero.
std::vector<double> orthogonal(int64_t count, int64_t period,
                               const std::vector<MuonMatrix>& matrices) {
  std::vector<double> x(static_cast<std::size_t>(count * period));
  for (int64_t n = 0; n < count; ++n)
    for (const MuonMatrix& m : matrices)
      for (int64_t i = 0; i < m.rows * m.cols; ++i) {
        const int64_t row = i / m.cols, col = i % m.cols, length = std::max(m.rows, m.cols);
        const int64_t wave = m.rows <= m.cols ? row : col, at = m.rows <= m.cols ? col : row;
        const double angle = std::numbers::pi * static_cast<double>(wave * (2 * at + 1)) /
                             static_cast<double>(2 * length);
        x[static_cast<std::size_t>(n * period + m.offset + i)] =
            wave == 0 ? 1 : std::numbers::sqrt2 * std::cos(angle);
      }
  return x;
}

// `count` times matrices of these sizes, eight elements or more apart; in types of 16 bits of
// `fine`. Where a + b A + c A^2 is nearly zero, rounding of b A + c A^2 counts many times. That
// shows less in matrices whose singular values are many, but within a factor of about four.
void newton_schulz(CaseRun& r, int64_t count, const std::vector<std::pair<int64_t, int64_t>>& sizes,
                   const std::vector<std::pair<int64_t, int64_t>>& fine) {
  NewtonSchulz k{.x = {}, .matrices = {}, .other = {}, .squares = {}};
  int64_t period = 0;
  for (const auto& [rows, cols] : size_of(r.rounded()) == 2 ? fine : sizes) {
    k.matrices.push_back({period, rows, cols});
    period += (rows * cols + 15) / 8 * 8;
  }
  k.x = r.replaced("x", {count, period}, 0.4, orthogonal(count, period, k.matrices));
  k.other = r.scratch({count, period}, r.type());
  k.squares = r.scratch({2, k.square_elements()}, r.type());
  r.set_bytes(k.cost().bytes);
  r.kernel(k, k.cost().flops);
}

// v of a matrix begins after a few elements that stay as they are.
void normalise_rows(CaseRun& r, int64_t count,
                    const std::vector<std::pair<int64_t, int64_t>>& sizes, float update_scale) {
  NormaliseRows k;
  int64_t period = 0, moments = 0;
  for (const auto& [rows, cols] : sizes) {
    k.matrices.push_back({period, rows, cols});
    period += (rows * cols + 15) / 8 * 8;
    k.moments.push_back(moments += 3);
    moments += rows;
  }
  k.x = r.replaced("x", {count, period});
  k.v = r.updated("v", {count, moments}, r.wide_type(), 0.1, 1);
  k.results = r.results(update_scale, false);
  r.kernel(k);
}

// Of matrices of two rows; `part` begins in the first and ends in the second.
void move_moments(CaseRun& r, const std::vector<std::pair<int64_t, int64_t>>& sizes, bool back) {
  MoveMoments k;
  int64_t period = 0, moments = 0;
  for (const auto& [rows, cols] : sizes) {
    k.matrices.push_back({period, rows, cols});
    period += (rows * cols + 15) / 8 * 8;
    moments += rows;
  }
  k.begin = 2, k.period = period, k.back = back;
  const Shape part = {2 * period - 7}, dense = {2, moments};
  k.part = back ? r.updated("part", part, r.wide_type(), 1, 0) : r.wide_input(part);
  k.dense = back ? r.wide_input(dense) : r.updated("dense", dense, r.wide_type(), 1, 0);
  r.kernel(k);
}

void update(CaseRun& r, int64_t n, bool ema, float update_scale) {
  MuonUpdate k;
  k.master = r.updated("master", {n}, r.wide_type(), 1, 0);
  if (ema) k.ema = r.updated("ema", {n}, r.wide_type(), 1, 0);
  k.compute = r.updated("compute", {n}, r.type(), 0, 0.5);
  k.o = r.input({n});
  k.weight_decay = 0.1;
  k.step = r.step();
  k.results = r.results(update_scale, false);
  r.kernel(k);
}

void add_muon_cases(Table& table) {
  for (const int64_t n : {1, 7, 8, 9, 33, 2049, 40000})
    for (const float scale : {0.25f, 0.0f}) {
      table.add<MuonMomentum>(case_of(momentum, n, scale), n, " elements, update scale ", scale);
      table.add<MuonUpdate>(case_of(update, n, scale > 0, scale), n, " elements, update scale ",
                            scale);
    }
  for (const int64_t count : {1, 3}) {
    table.add<NewtonSchulz>(case_of(newton_schulz, count, {{1, 1}, {3, 1}, {8, 33}, {64, 16}},
                                    {{24, 96}, {33, 161}, {64, 32}, {28, 200}}),
                            count, " of four");
    table.add<NewtonSchulz>(case_of(newton_schulz, count, {{16, 96}, {16, 64}, {64, 16}},
                                    {{32, 96}, {32, 64}, {64, 32}}),
                            count, " of one side");
  }
  for (const float scale : {0.25f, 0.0f})
    for (const int64_t count : {1, 3})
      table.add<NormaliseRows>(
          case_of(normalise_rows, count, {{1, 1}, {3, 1}, {8, 33}, {64, 16}, {70, 264}}, scale),
          count, " of five, update scale ", scale);
  table.add<NormaliseRows>(
      case_of(normalise_rows, 2,
              {{8, 8}, {9, 8}, {8, 9}, {7, 8}, {8, 7}, {300, 8}, {1, 1}, {2, 520}, {520, 2}},
              0.25f),
      "2 of nine");
  for (const bool back : {false, true}) {
    table.add<MoveMoments>(case_of(move_moments, {{8, 3}, {1, 1}, {300, 2}, {4, 5}}, back),
                           "2 of four", back ? ", back" : "");
    table.add<MoveMoments>(
        case_of(move_moments,
                {{8, 8}, {9, 8}, {8, 9}, {7, 8}, {8, 7}, {3, 8}, {1, 1}, {2, 5}, {5, 2}}, back),
        "2 of nine", back ? ", back" : "");
  }
  constexpr int64_t matrices = 12 * 512 * 6144;
  table.time<MuonMomentum>(case_of(momentum, matrices, 0.25f), matrices, " elements");
  const std::vector<std::pair<int64_t, int64_t>> block = {
      {1536, 512}, {512, 512}, {2048, 512}, {512, 2048}};
  table.time<NewtonSchulz>(case_of(newton_schulz, 12, block, block), "12 blocks of d 512");
  table.time<NormaliseRows>(case_of(normalise_rows, 12, block, 0.25f), "12 blocks of d 512");
  for (const bool back : {false, true})
    table.time<MoveMoments>(case_of(move_moments, block, back), "2 blocks of d 512",
                            back ? ", back" : "");
  table.time<MuonUpdate>(case_of(update, matrices, false, 0.25f), matrices, " elements");
}

const bool added = add_cases_of_part(add_muon_cases);
}  // namespace
}  // namespace weft
