// SPDX-License-Identifier: MIT
// Means, norms, the loss scale, AdamW: awkward sizes to verify, and those of the text model to
// time.
#include "kernels/diagnostics/count_non_finite.h"
#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/loss_scale.h"
#include "kernels/optimizer/reduce.h"
#include "tests/cases/kernel_cases.h"

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace weft {
namespace {
void mean_forward(CaseRun& r, int64_t n) {
  r.kernel(
      MeanForward{r.output("y", {1}, r.wide_type()), r.wide_input({n}, 1, 5), r.results(0, true)});
}

void mean_backward(CaseRun& r, int64_t n, bool with_dy) {
  r.kernel(MeanBackward{r.wide_gradient("dx", {n}), with_dy ? r.wide_input({1}) : TensorView{},
                        r.step()});
}

void clip_coefficient(CaseRun& r, int64_t n, double clip) {
  r.kernel(ClipCoefficient{r.results(0, true), r.wide_input({n}), r.step(), clip});
}

// Of tensors of n, n + 1 ... elements.
void square_sum(CaseRun& r, int64_t n, int64_t tensors) {
  SquareSum k{.y = r.output("y", {1}, DType::f64), .xs = {}};
  for (int64_t i = 0; i < tensors; ++i) k.xs.push_back(r.wide_input({n + i}));
  r.kernel(k);
}

// From sums of squares over n parts, those of numbers of about one.
void clip_of_parts(CaseRun& r, int64_t n, double clip) {
  std::vector<double> squares;
  for (int64_t i = 0; i < n; ++i) squares.push_back(1 + 0.1 * static_cast<double>(i % 7));
  r.kernel(ClipCoefficient{
      r.results(0, true), {}, r.step(), clip, r.input_of({n}, DType::f64, squares)});
}

void count_non_finite(CaseRun& r, int64_t n, bool clean) {
  CountNonFinite k;
  k.count = r.output("count", {1}, DType::i32);
  std::vector<double> values(static_cast<std::size_t>(n), 1.5);
  for (std::size_t i = 0; !clean && i < values.size(); i += 7) values[i] = i % 2 ? INFINITY : NAN;
  k.x = r.input_of({n}, r.type(), values);
  r.kernel(k);
}

// Of elements of one type, whatever T is: the sum is of their bits.
void fingerprint(CaseRun& r, int64_t n, DType stored, int64_t first) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i * i % 251));
  r.kernel(Fingerprint{r.memory("sum", uint64_t{5}), r.input_of({n}, stored, values), first});
}

void adamw_update(CaseRun& r, int64_t n, int64_t decayed, bool ema, float update_scale) {
  AdamWUpdate k;
  k.master = r.updated("master", {n}, r.wide_type(), 1, 0);
  k.m = r.updated("m", {n}, r.wide_type(), 0.1, 0);
  k.v = r.updated("v", {n}, r.wide_type(), 0.05, 0.3);
  if (ema) k.ema = r.updated("ema", {n}, r.wide_type(), 1, 0);
  k.compute = r.updated("compute", {n}, r.type(), 0, 0.5);
  k.gradients = r.wide_input({n});
  k.decayed = decayed;
  k.beta1 = 0.8;
  k.beta2 = 0.9;
  k.eps = 1e-2;
  k.weight_decay = 0.1;
  k.step = r.step();
  k.results = r.results(update_scale, false);
  r.kernel(k);
}

void apply_loss_scale(CaseRun& r, double scale, int64_t parts) {
  r.kernel(ApplyLossScale{
      .step = r.memory("step", StepScalars{.seed = 5, .draw = 7, .first_row = 11}),
      .state = r.memory("", LossScale{.scale = scale}),
      .parts = parts,
  });
}

// Of update number 7.
void update_loss_scale(CaseRun& r, const LossScale& state, float norm) {
  const StepResults results{.loss = 2, .gradient_norm = norm, .update_scale = 0.5};
  r.kernel(UpdateLossScale{
      .state = r.memory("state", state),
      .results = r.memory("results", results),
      .step = r.memory("step", StepScalars{.seed = 5, .draw = 7, .first_row = 11}),
      .window = 4,
      .beta1 = 0.8,
      .beta2 = 0.99,
      .ema_decay = 0.999,
      .momentum = 0.95,
  });
}

void add_loss_scale(Table& table) {
  for (const double scale : {1.0, 65536.0, 1000.7, 0x1p-3, 0x1p140})
    for (const int64_t parts : {1, 2, 6})
      table.add<ApplyLossScale>(case_of(apply_loss_scale, scale, parts), "scale ", scale, ", ",
                                parts, " parts");
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const float norm : {0.0f, 3.5f, inf, std::nanf("")})
    for (const int64_t good : {0, 2, 3})
      for (const int64_t skipped : {0, 1, 6})
        table.add<UpdateLossScale>(case_of(update_loss_scale, {1024, good, skipped}, norm), "norm ",
                                   norm, ", ", good, " good ones, ", skipped, " skipped");
  table.time<ApplyLossScale>(case_of(apply_loss_scale, 65536, 1), "scale 65536, 1 part");
  table.time<UpdateLossScale>(case_of(update_loss_scale, {65536, 1, 0}, 1), "a good one");
}
}  // namespace

void add_step_cases(Table& table) {
  for (const int64_t n : {1, 7, 8, 9, 31, 32, 33, 2047, 2048, 2049, 40000}) {
    table.add<MeanForward>(case_of(mean_forward, n), n, " elements");
    table.add<MeanBackward>(case_of(mean_backward, n, true), n, " elements");
    table.add<MeanBackward>(case_of(mean_backward, n, false), n, " elements, of the objective");
    table.add<ClipCoefficient>(case_of(clip_coefficient, n, 1), n, " elements, clip 1");
    table.add<ClipCoefficient>(case_of(clip_coefficient, n, 0), n, " elements, no clip");
    table.add<ClipCoefficient>(case_of(clip_coefficient, n, 1e6), n, " elements, within clip");
    table.add<ClipCoefficient>(case_of(clip_of_parts, n, 1), n, " sums of squares");
    for (const int64_t tensors : {1, 3, 64})
      table.add<SquareSum>(case_of(square_sum, n, tensors), tensors, " tensors of ", n,
                           " elements");
    table.add<CountNonFinite>(case_of(count_non_finite, n, false), n, " elements");
    table.add<CountNonFinite>(case_of(count_non_finite, n, true), n, " elements, all finite");
    for (const DType stored : {DType::f32, DType::bf16, DType::u8})
      table.add<Fingerprint>(case_of(fingerprint, n, stored, n / 3), n, " elements of ",
                             name_of(stored));
    table.add<AdamWUpdate>(case_of(adamw_update, n, n / 2, true, 0.25f), n, " elements");
    table.add<AdamWUpdate>(case_of(adamw_update, n, n, false, 0.25f), n,
                           " elements, all decayed, no average");
    table.add<AdamWUpdate>(case_of(adamw_update, n, n / 2, true, 0), n, " elements, skipped");
  }
  table.add<SquareSum>(case_of(square_sum, SumOrder::kTurn + 5, 2), "2 tensors, more than a turn");
  add_loss_scale(table);
  constexpr int64_t tokens = 4 * 12288, residual = tokens * 512, parameters = 95'000'000;
  table.time<MeanForward>(case_of(mean_forward, tokens), tokens, " elements");
  table.time<MeanBackward>(case_of(mean_backward, tokens, false), tokens, " elements");
  table.time<ClipCoefficient>(case_of(clip_coefficient, parameters, 1), parameters, " elements");
  table.time<SquareSum>(case_of(square_sum, parameters / 16, 16), parameters,
                        " elements in 16 tensors");
  table.time<CountNonFinite>(case_of(count_non_finite, residual, true), residual, " elements");
  table.time<Fingerprint>(case_of(fingerprint, residual, DType::f32, 0), residual, " elements");
  table.time<AdamWUpdate>(case_of(adamw_update, parameters, parameters, false, 0.25f), parameters,
                          " elements");
}
}  // namespace weft
