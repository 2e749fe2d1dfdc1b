// SPDX-License-Identifier: MIT
// Sampling: awkward sizes to verify, and those of a 59 M image model with 256 samples at a time to
// time.
#include "kernels/sampling/choose_token.h"
#include "kernels/sampling/decode_attention.h"
#include "kernels/sampling/decode_linear.h"
#include "tests/cases/kernel_cases.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft {
namespace {
struct AroundLinear {
  bool norm = false, bias = true;
  std::optional<Activation> f = {};
  bool residual = false;
};

void decode_linear(CaseRun& r, int64_t n, int64_t k_size, int64_t m, const AroundLinear& with) {
  DecodeLinear k;
  k.y = r.output("y", {n, m}, r.type());
  k.x = r.input({n, k_size}, 1, with.norm ? 0.5 : 0);
  if (with.norm) k.norm_w = r.wide_input({k_size}, 0.3, 1);
  if (with.norm) k.norm_b = r.wide_input({k_size});
  k.eps = 1e-2;
  k.w = r.input({m, k_size}, 0.1);
  if (with.bias) k.b = r.input({m});
  k.f = with.f;
  if (with.residual) k.residual = r.input({n, m});
  r.kernel(k, 2.0 * static_cast<double>(n * k_size * m));
}

// Position 1 of texts of three; sample numbers from 3 on. `few`: many equal logits.
void choose_token(CaseRun& r, int64_t b, int64_t v, const Choice& choice, bool few) {
  ChooseToken k;
  k.tokens = r.output("tokens", {b, 3}, DType::i32);
  k.drawn = r.output("drawn", {3, b}, DType::i32);
  std::vector<double> values(static_cast<std::size_t>(b * v));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i * 37 % 11) * 0.5 - 2;
  k.logits = few ? r.input_of({b, v}, r.type(), values) : r.input({b, v}, 2);
  k.position = r.numbers({1});
  k.first_sample = r.numbers({3});
  k.choice = choice;
  k.seed = 0x123456789abcdef0u;
  r.kernel(k);
}

// The columns of keys, which others surround. Some rows of the cache get nothing, others the same.
void gather_rows(CaseRun& r, int64_t b, int64_t rows, int64_t t, int64_t h, int64_t d) {
  GatherRows k;
  k.y = r.updated("y", {b, rows, d}, r.type(), 1, 0);
  k.x = heads_of(r.input({1, t, h * d + 3}), 2, h, d);
  k.source = r.integers({rows}, -1, t * h - 1).as<int32_t>();
  r.kernel(k);
}

std::string text_of(int64_t n, int64_t k, int64_t m, const AroundLinear& with) {
  return str("N ", n, ", K ", k, ", M ", m, with.norm ? ", norm" : "", with.bias ? ", bias" : "",
             with.f ? str(", ", name_of(*with.f)) : "", with.residual ? ", residual" : "");
}

void add_linear(Table& t) {
  constexpr int64_t sizes[][3] = {{1, 1, 1},      {1, 33, 31},    {31, 32, 33},  {33, 31, 65},
                                  {64, 64, 64},   {65, 72, 62},   {129, 40, 8},  {7, 520, 257},
                                  {3, 1000, 2},   {1, 8, 256},    {63, 264, 16}, {9, 256, 130},
                                  {40, 320, 256}, {17, 2048, 96}, {256, 24, 34}, {2, 8, 70002}};
  const AroundLinear variants[] = {{},
                                   {.bias = false},
                                   {.norm = true, .bias = false, .f = Activation::gelu},
                                   {.norm = true, .f = Activation::gelu, .residual = true},
                                   {.norm = true, .f = Activation::relu2, .residual = true},
                                   {.bias = false, .f = Activation::relu2},
                                   {.residual = true}};
  for (const auto& [n, k, m] : sizes)
    for (const AroundLinear& with : variants)
      t.add<DecodeLinear>(case_of(decode_linear, n, k, m, with), text_of(n, k, m, with));
  const auto time = [&](int64_t k, int64_t m, const AroundLinear& with) {
    t.time<DecodeLinear>(case_of(decode_linear, 256, k, m, with), text_of(256, k, m, with));
  };
  time(256, 512, {.norm = true});
  time(256, 512, {.norm = true, .f = Activation::gelu});
  time(256, 256, {.residual = true});
  time(512, 256, {.residual = true});
}

void add_choices(Table& t) {
  const auto add = [&](int64_t b, int64_t v, const Choice& c, bool few, bool realistic) {
    t.put<ChooseToken>(realistic, case_of(choose_token, b, v, c, few), "B ", b, ", V ", v,
                       ", temperature ", c.temperature, ", top-k ", c.top_k, ", top-p ", c.top_p,
                       few ? ", equal logits" : "");
  };
  const Choice choices[] = {{}, {0, 0, 1}, {0.7, 5, 1}, {1.3, 0, 0.8}, {1, 40, 0.5}, {1e-3, 0, 1}};
  for (const int64_t v : {1, 2, 31, 256, 257, 1000, 70001})
    for (const Choice& choice : choices)
      for (const bool few : {false, true}) add(v > 1000 ? 2 : 17, v, choice, few, false);
  add(256, 256, {}, false, true);
  add(256, 256, {0.9, 50, 0.95}, false, true);
}
}  // namespace

void add_sampling_cases(Table& t) {
  add_linear(t);
  add_choices(t);
  constexpr int64_t sizes[][5] = {{1, 1, 1, 1, 1}, {3, 33, 31, 2, 9}, {2, 300, 17, 5, 64}};
  for (const auto& [b, rows, n, h, d] : sizes)
    t.add<GatherRows>(case_of(gather_rows, b, rows, n, h, d), "B ", b, ", R ", rows, ", T ", n,
                      ", H ", h, ", D ", d);
  t.time<GatherRows>(case_of(gather_rows, 1, 49152, 12288, 8, 64),
                     "B 1, R 49152, T 12288, H 8, D 64");
}
}  // namespace weft
