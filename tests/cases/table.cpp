// SPDX-License-Identifier: MIT
// Each kernel has a builder, awkward sizes to verify (1, 31, 32, 33, tiles +- 1), and realistic
// ones to time (the 12,288-token model of width 512, four sequences).
#include "kernels/layers/cross_entropy.h"
#include "kernels/layers/embedding.h"
#include "kernels/layers/pointwise.h"
#include "kernels/linear/activation.h"
#include "kernels/linear/linear.h"
#include "tests/cases/kernel_cases.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kTokens = 4 * 12288;  // of a realistic case

void linear_forward(CaseRun& r, int64_t n, int64_t k_size, int64_t m, bool bias,
                    bool batch_invariant) {
  LinearForward k;
  k.y = r.output("y", {n, m}, r.type());
  k.x = r.input({n, k_size});
  k.w = r.input({m, k_size}, 0.1);
  if (bias) k.b = r.input({m});
  k.batch_invariant = batch_invariant;
  r.kernel(k, 2.0 * static_cast<double>(n * k_size * m));
}

void linear_backward(CaseRun& r, int64_t n, int64_t k_size, int64_t m, bool dx, bool dw) {
  LinearBackward k;
  if (dx) k.dx = r.gradient("dx", {n, k_size});
  if (dw) k.dw = r.wide_gradient("dw", {m, k_size});
  if (dw) k.db = r.wide_gradient("db", {m});
  k.dy = r.input({n, m});
  if (k.x = r.input({n, k_size}); !dw) k.x.data = nullptr;
  k.w = r.input({m, k_size}, 0.1);
  r.kernel(k, (2.0 * dx + 2.0 * dw) * static_cast<double>(n * k_size * m));
}

void activation_forward(CaseRun& r, int64_t n, int64_t c, bool bias, Activation f) {
  ActivationForward k{r.output("y", {n, c}, r.type()), r.input({n, c}, 3)};
  if (bias) k.bias = r.input({c});
  k.f = f;
  r.kernel(k);
}

void activation_backward(CaseRun& r, int64_t n, int64_t c, bool bias, Activation f) {
  ActivationBackward k;
  k.dx = r.gradient("dx", {n, c});
  if (bias) k.dbias = r.wide_gradient("dbias", {c});
  k.dy = r.input({n, c});
  k.x = r.input({n, c}, 3);
  if (bias) k.bias = r.input({c});
  k.f = f;
  r.kernel(k);
}

void dropout(CaseRun& r, int64_t n, double p) {
  r.kernel(Dropout{r.gradient("y", {n}), r.input({n}), p, 3, r.step()});
}

void add(CaseRun& r, int64_t n) { r.kernel(Add{r.gradient("out", {n}), r.input({n})}); }

void sum_of(CaseRun& r, int64_t n, int terms) {
  SumOf k{.out = r.output("out", {n}, r.type()), .xs = {}};
  for (int i = 0; i < terms; ++i) k.xs.push_back(r.input({n}));
  r.kernel(k);
}

void cast(CaseRun& r, int64_t n, bool to_wide) {
  if (to_wide) r.kernel(Cast{r.output("y", {n}, r.wide_type()), r.input({n})});
  if (!to_wide) r.kernel(Cast{r.output("y", {n}, r.type()), r.wide_input({n})});
}

// What sequences come with besides tokens.
enum class Besides : uint8_t { nothing, offsets, positions, conditions, previous };
constexpr int64_t kStartRows = 5, kKinds = 3;  // with conditions

template <class Kernel>
void add_besides(CaseRun& r, Kernel& k, Besides what, int64_t b, int64_t t) {
  if (what == Besides::offsets) k.offsets = r.integers({b}, 0, 3 * t);
  if (what == Besides::positions) k.positions = r.integers({b, t}, 0, 3 * t);
  if (what == Besides::conditions) k.conditions = r.integers({b, kKinds}, 0, kStartRows - 1);
}

Shape start_shape(Besides what, int64_t c) {
  return what == Besides::conditions ? Shape{kStartRows, c} : Shape{c};
}

// Position axes as the paper's text model has them: t / stride and t % stride.
void embedding_forward(CaseRun& r, int64_t b, int64_t t, int64_t v, int64_t c, int64_t stride,
                       int64_t first, int64_t count, Besides besides, bool in_memory) {
  EmbeddingForward k;
  k.y = r.output("y", {b, count, c}, r.type());
  k.tokens = r.integers({b, t}, 0, v - 1);
  k.first = first;
  if (in_memory)
    k.first_at = r.input_of({1}, DType::i32, {static_cast<double>(first)}).as<int32_t>();
  k.table = r.input({v, c});
  k.start = r.input(start_shape(besides, c));
  if (besides == Besides::previous) k.previous = r.input({v, c});
  if (stride > 0) {
    k.axis[0] = {r.input({(t + stride - 1) / stride, c}), stride};
    k.axis[1] = {r.input({stride, c}), 1};
    k.axes = 2;
  }
  add_besides(r, k, besides, b, t);
  r.kernel(k);
}

void embedding_backward(CaseRun& r, int64_t b, int64_t t, int64_t v, int64_t c, int64_t stride,
                        Besides besides) {
  EmbeddingBackward k;
  k.dtable = r.wide_gradient("dtable", {v, c});
  k.dstart = r.wide_gradient("dstart", start_shape(besides, c));
  if (besides == Besides::previous) k.dprevious = r.wide_gradient("dprevious", {v, c});
  if (stride > 0) {
    k.daxis[0] = r.wide_gradient("daxis 0", {(t + stride - 1) / stride, c});
    k.divisor[0] = stride;
    k.daxis[1] = r.wide_gradient("daxis 1", {stride, c});
    k.daxis[2] = r.wide_gradient("daxis 2", {3, c});
    k.divisor[2] = 2;
    k.axes = 3;
  }
  add_besides(r, k, besides, b, t);
  k.dy = r.input({b, t, c});
  k.tokens = r.integers({b, t}, 0, v - 1);
  r.kernel(k);
}

void cross_entropy_forward(CaseRun& r, int64_t n, int64_t v) {
  r.kernel(CrossEntropyForward{r.output("loss", {n}, r.wide_type()),
                               r.output("lse", {n}, r.wide_type()), r.input({n, v}, 3),
                               r.integers({n}, -1, v - 1)});
}

void cross_entropy_backward(CaseRun& r, int64_t n, int64_t v) {
  const double lse = std::log(static_cast<double>(v)) + 4;
  r.kernel(CrossEntropyBackward{r.gradient("dlogits", {n, v}), r.wide_input({n}),
                                r.wide_input({n}, 0.1, lse), r.input({n, v}, 3),
                                r.integers({n}, -1, v - 1)});
}

void add_cross_entropy(Table& t) {
  const auto add = [&](bool realistic, int64_t n, int64_t v) {
    t.put<CrossEntropyForward>(realistic, case_of(cross_entropy_forward, n, v), "N ", n, ", V ", v);
    t.put<CrossEntropyBackward>(realistic, case_of(cross_entropy_backward, n, v), "N ", n, ", V ",
                                v);
  };
  for (const int64_t v : {1, 31, 33, 255, 256, 257, 1000, 1024, 1025, 2056, 10007, 70017})
    add(false, v % 32 + 1, v);
  add(true, kTokens, 256);
  add(true, 4096, 65536);
}

void add_linear(Table& t) {
  constexpr int64_t sizes[][3] = {{1, 1, 1},       {1, 33, 31},  {31, 32, 33}, {33, 31, 65},
                                  {64, 64, 64},    {65, 72, 63}, {129, 40, 8}, {7, 520, 257},
                                  {300, 128, 384}, {2, 1000, 1}, {1, 8, 256},  {63, 264, 16},
                                  {8, 512, 128},   {9, 256, 130}};
  for (const auto& [n, k, m] : sizes) {
    const std::string text = str("N ", n, ", K ", k, ", M ", m);
    t.add<LinearForward>(case_of(linear_forward, n, k, m, true, false), text);
    t.add<LinearForward>(case_of(linear_forward, n, k, m, false, false), text, ", no bias");
    t.add<LinearForward>(case_of(linear_forward, n, k, m, true, true), text, ", batch invariant");
    t.add<LinearBackward>(case_of(linear_backward, n, k, m, true, true), text);
  }
  t.add<LinearBackward>(case_of(linear_backward, 33, 40, 24, true, false),
                        "N 33, K 40, M 24, dx alone");
  constexpr int64_t sums[][3] = {
      {5000, 40, 24}, {1000, 264, 392}, {3333, 136, 200}, {63, 512, 584}};
  for (const auto& [n, k, m] : sums)
    t.add<LinearBackward>(case_of(linear_backward, n, k, m, false, true), "N ", n, ", K ", k,
                          ", M ", m, ", no dx");
  constexpr int64_t shapes[][2] = {{512, 1536}, {512, 512}, {512, 2048}, {2048, 512}};
  for (const auto& [k, m] : shapes) {
    const std::string text = str("N ", kTokens, ", K ", k, ", M ", m);
    t.time<LinearForward>(case_of(linear_forward, kTokens, k, m, true, false), text);
    t.time<LinearBackward>(case_of(linear_backward, kTokens, k, m, true, false), text, ", dx");
    t.time<LinearBackward>(case_of(linear_backward, kTokens, k, m, false, true), text,
                           ", dw and db");
  }
  t.time<LinearForward>(case_of(linear_forward, 64, 512, 2048, true, true),
                        "N 64, K 512, M 2048, batch invariant");
}

void add_elementwise(Table& t) {
  for (const int64_t n : {1, 7, 8, 9, 31, 32, 33, 2047, 2048, 2049, 40000}) {
    for (const Activation f : {Activation::gelu, Activation::relu2}) {
      t.add<ActivationForward>(case_of(activation_forward, 1, n, false, f), name_of(f), ", N 1, C ",
                               n, ", no bias");
      t.add<ActivationBackward>(case_of(activation_backward, 1, n, false, f), name_of(f),
                                ", N 1, C ", n, ", no bias");
    }
    for (const double p : {0.4, 0.0}) t.add<Dropout>(case_of(dropout, n, p), n, " elements, p ", p);
    t.add<Add>(case_of(add, n), n, " elements");
    for (const int terms : {1, 2, 4, 8})
      t.add<SumOf>(case_of(sum_of, n, terms), n, " elements, ", terms, " terms");
    t.add<Cast>(case_of(cast, n, true), n, " elements, to the wide type");
    t.add<Cast>(case_of(cast, n, false), n, " elements, from the wide type");
  }
  constexpr int64_t sizes[][2] = {{1, 1},    {3, 7},     {33, 8},   {31, 33},
                                  {9, 256},  {600, 264}, {17, 255}, {130, 512},
                                  {5, 1024}, {4301, 40}, {2, 2056}, {1100, 72}};
  const auto add_activation = [&](bool realistic, int64_t n, int64_t c) {
    for (const Activation f : {Activation::gelu, Activation::relu2}) {
      t.put<ActivationForward>(realistic, case_of(activation_forward, n, c, true, f), name_of(f),
                               ", N ", n, ", C ", c);
      t.put<ActivationBackward>(realistic, case_of(activation_backward, n, c, true, f), name_of(f),
                                ", N ", n, ", C ", c);
    }
  };
  for (const auto& [n, c] : sizes) add_activation(false, n, c);
  constexpr int64_t residual = kTokens * 512, parameters = 95'000'000;
  for (const int64_t c : {512, 2048}) add_activation(true, kTokens, c);
  t.time<Dropout>(case_of(dropout, residual, 0.4), residual, " elements, p 0.4");
  t.time<Add>(case_of(add, residual), residual, " elements");
  t.time<SumOf>(case_of(sum_of, residual, 4), residual, " elements, 4 terms");
  t.time<Cast>(case_of(cast, parameters, false), parameters, " elements, from the wide type");
}

void add_embedding(Table& t) {
  constexpr int64_t sizes[][5] = {
      {1, 1, 5, 8, 0},      {2, 33, 1, 7, 0},    {3, 65, 31, 33, 8},     {1, 2, 256, 32, 1},
      {2, 130, 3, 264, 16}, {4, 257, 65, 24, 5}, {2, 300, 256, 264, 32}, {3, 2, 7, 9, 2},
      {1, 2000, 2, 16, 64}, {2, 9, 70001, 8, 0}};
  for (const auto& [b, n, v, c, stride] : sizes) {
    const std::string text = str("B ", b, ", T ", n, ", V ", v, ", C ", c, ", stride ", stride);
    t.add<EmbeddingForward>(
        case_of(embedding_forward, b, n, v, c, stride, 0, n, Besides::nothing, false), text);
    t.add<EmbeddingForward>(
        case_of(embedding_forward, b, n, v, c, stride, n, 1, Besides::nothing, false), text,
        ", last row");
    t.add<EmbeddingBackward>(case_of(embedding_backward, b, n, v, c, stride, Besides::nothing),
                             text);
    t.add<EmbeddingForward>(
        case_of(embedding_forward, b, n, v, c, stride, n / 2, 1, Besides::nothing, true), text,
        ", one row, its number in memory");
    for (const auto& [besides, name] : {std::pair{Besides::offsets, "offsets"},
                                        {Besides::positions, "positions"},
                                        {Besides::conditions, "conditions"},
                                        {Besides::previous, "previous tokens"}}) {
      t.add<EmbeddingForward>(case_of(embedding_forward, b, n, v, c, stride, 0, n, besides, false),
                              text, ", ", name);
      t.add<EmbeddingBackward>(case_of(embedding_backward, b, n, v, c, stride, besides), text, ", ",
                               name);
    }
  }
  // A row of a position axis sums hundreds of thousands of terms.
  t.add<EmbeddingBackward>(case_of(embedding_backward, 1, 1 << 20, 16, 4, 1024, Besides::nothing),
                           "B 1, T 2^20, V 16, C 4, stride 1024");
  const char* const text = "B 4, T 12288, V 256, C 512, stride 128";
  t.time<EmbeddingForward>(
      case_of(embedding_forward, 4, 12288, 256, 512, 128, 0, 12288, Besides::nothing, false), text);
  t.time<EmbeddingBackward>(case_of(embedding_backward, 4, 12288, 256, 512, 128, Besides::nothing),
                            text);
}

// ---- GEMMs with an activation in the epilogue ----

struct Sizes {
  int64_t n, inner, m;

  double flops() const { return 2.0 * static_cast<double>(n * inner * m); }
};

// `all`: the optional tensors are present.
void linear_activation_forward(CaseRun& r, const Sizes& s, bool all, LinearActivationForm form,
                               Activation f) {
  LinearActivationForward k;
  k.y = r.output("y", {s.n, s.m}, r.type());
  if (all) k.h = r.output("h", {s.n, s.m}, r.type());
  k.x = r.input({s.n, s.inner});
  k.w = r.input({s.m, s.inner}, 0.1);
  k.b = r.input({s.m});
  k.f = f;
  k.form = form;
  r.kernel(k, s.flops());
}

// `in_place`: y replaces h.
void linear_activation_backward(CaseRun& r, const Sizes& s, bool all, LinearActivationForm form,
                                Activation f, bool in_place) {
  LinearActivationBackward k;
  k.dh = r.output("dh", {s.n, s.m}, r.type());
  if (all) {
    k.y = in_place ? r.replaced("y", {s.n, s.m}, 2) : r.output("y", {s.n, s.m}, r.type());
    k.db = r.wide_gradient("db", {s.m});
    r.through_rounded();
  }
  k.dy = r.input({s.n, s.inner});
  k.w = r.input({s.inner, s.m}, 0.1);
  k.h = all && in_place ? k.y : r.input({s.n, s.m}, 2);
  k.b = r.input({s.m});
  k.f = f;
  k.form = form;
  r.kernel(k, s.flops());
}

void add(Table& t, const Sizes& s, bool all, bool realistic,
         LinearActivationForm form = LinearActivationForm::automatic,
         Activation f = Activation::gelu) {
  const auto text = [&](const char* inner, const char* alone) {
    return str("N ", s.n, ", ", inner, " ", s.inner, ", M ", s.m, all ? "" : alone,
               form == LinearActivationForm::automatic ? "" : str(", ", name_of(form)),
               f == Activation::gelu ? "" : str(", ", name_of(f)));
  };
  t.put<LinearActivationForward>(realistic, case_of(linear_activation_forward, s, all, form, f),
                                 text("K", ", y alone"));
  t.put<LinearActivationBackward>(realistic,
                                  case_of(linear_activation_backward, s, all, form, f, false),
                                  text("C", ", dh alone"));
}

std::vector<void (*)(Table&)>& cases_of_parts() {
  static std::vector<void (*)(Table&)> all;
  return all;
}
}  // namespace

bool add_cases_of_part(void (*add)(Table&)) {
  cases_of_parts().push_back(add);
  return true;
}

const std::vector<KernelCase>& kernel_cases() {
  static const std::vector<KernelCase> cases = [] {
    Table t;
    for (const auto add : {add_norm_cases, add_rotary_cases, add_cross_entropy, add_linear,
                           add_linear_activation_cases, add_elementwise, add_step_cases,
                           add_embedding, add_sampling_cases, add_block_cases, add_attention_cases})
      add(t);
    for (const auto add : cases_of_parts()) add(t);
    return t.cases;
  }();
  return cases;
}

// Sizes whose inner axis and M are multiples of 8 run on Hopper's own kernel: tiles of 128 rows,
// groups of 256 columns. Its 66 clusters take several tiles each of 8,600 rows, and several groups
// of 16,904 columns.
void add_linear_activation_cases(Table& t) {
  constexpr Sizes awkward[] = {{1, 1, 1},       {1, 33, 31},     {31, 32, 33},    {33, 31, 65},
                               {65, 72, 63},    {130, 64, 128},  {129, 200, 264}, {7, 520, 257},
                               {1, 8, 8},       {300, 512, 384}, {257, 192, 256}, {2, 1000, 1},
                               {1000, 64, 520}, {127, 264, 72},  {400, 504, 648}, {8600, 40, 24},
                               {3, 8, 16904}};
  for (const Sizes& s : awkward) {
    add(t, s, true, false);
    add(t, s, false, false);
  }
  add(t, {300, 128, 384}, true, false, LinearActivationForm::composed);
  for (const Sizes& s : {Sizes{33, 31, 65}, Sizes{300, 512, 384}, Sizes{1000, 64, 520}})
    for (const auto form : {LinearActivationForm::automatic, LinearActivationForm::composed})
      for (const Activation f : {Activation::gelu, Activation::relu2})
        t.add<LinearActivationBackward>(case_of(linear_activation_backward, s, true, form, f, true),
                                        "N ", s.n, ", C ", s.inner, ", M ", s.m,
                                        ", y in place of h, ", name_of(form), ", ", name_of(f));
  for (const Sizes& s : {Sizes{1, 8, 8}, Sizes{31, 32, 33}, Sizes{300, 512, 384},
                         Sizes{127, 264, 72}, Sizes{400, 504, 648}, Sizes{257, 192, 256}})
    for (const bool all : {true, false})
      add(t, s, all, false, LinearActivationForm::automatic, Activation::relu2);
  for (const Sizes& s : {Sizes{kTokens, 512, 2048}, Sizes{kTokens, 256, 512}}) {
    for (const Activation f : {Activation::gelu, Activation::relu2})
      add(t, s, true, true, LinearActivationForm::automatic, f);
    add(t, s, true, true, LinearActivationForm::composed);
  }
}
}  // namespace weft
