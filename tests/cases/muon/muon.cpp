// SPDX-License-Identifier: MIT
// Muon: matrices wide, tall and square, alone and in batches; those of the text model of 12 layers.
#include "kernels/optimizer/muon/muon.h"

#include "tests/cases/kernel_cases.h"

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

// `count` times matrices of these sizes, eight elements or more apart.
void newton_schulz(CaseRun& r, int64_t count,
                   const std::vector<std::pair<int64_t, int64_t>>& sizes) {
  NewtonSchulz k{.x = {}, .matrices = {}, .other = {}, .squares = {}};
  int64_t period = 0;
  for (const auto& [rows, cols] : sizes) {
    k.matrices.push_back({period, rows, cols});
    period += (rows * cols + 15) / 8 * 8;
  }
  k.x = r.replaced("x", {count, period});
  k.other = r.scratch({count, period}, r.type());
  k.squares = r.scratch({2, k.square_elements()}, r.type());
  r.set_bytes(k.cost().bytes);
  r.kernel(k, k.cost().flops);
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
    table.add<NewtonSchulz>(case_of(newton_schulz, count, {{1, 1}, {3, 1}, {8, 33}, {64, 16}}),
                            count, " of four");
    table.add<NewtonSchulz>(case_of(newton_schulz, count, {{16, 96}, {16, 64}, {64, 16}}), count,
                            " of one side");
  }
  constexpr int64_t matrices = 12 * 512 * 6144;
  table.time<MuonMomentum>(case_of(momentum, matrices, 0.25f), matrices, " elements");
  table.time<NewtonSchulz>(
      case_of(newton_schulz, 12, {{1536, 512}, {512, 512}, {2048, 512}, {512, 2048}}),
      "12 blocks of d 512");
  table.time<MuonUpdate>(case_of(update, matrices, false, 0.25f), matrices, " elements");
}

const bool added = add_cases_of_part(add_muon_cases);
}  // namespace
}  // namespace weft
