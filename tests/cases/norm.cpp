// SPDX-License-Identifier: MIT
// Layer normalisation, alone and behind a residual connection.
#include "kernels/layers/canon.h"
#include "kernels/layers/layernorm.h"
#include "kernels/layers/mix.h"
#include "kernels/layers/rotary.h"
#include "tests/cases/kernel_cases.h"

#include <array>
#include <string>
#include <utility>

namespace weft {
namespace {
void layernorm_forward(CaseRun& r, int64_t n, int64_t c) {
  r.kernel(LayerNormForward{r.output("y", {n, c}, r.type()), r.output("mean", {n}, r.wide_type()),
                            r.output("rstd", {n}, r.wide_type()), r.input({n, c}, 2, 0.5),
                            r.wide_input({c}, 0.3, 1), r.wide_input({c}), 1e-2});
}

void layernorm_backward(CaseRun& r, int64_t n, int64_t c, bool with_dx, bool with_parameters) {
  LayerNormBackward k;
  if (with_dx) k.dx = r.gradient("dx", {n, c});
  if (with_parameters) k.dw = r.wide_gradient("dw", {c});
  if (with_parameters) k.db = r.wide_gradient("db", {c});
  k.dy = r.input({n, c});
  k.x = r.input({n, c}, 2, 0.5);
  k.mean = r.wide_input({n}, 0.1, 0.5);
  k.rstd = r.wide_input({n}, 0.05, 0.5);
  k.w = r.wide_input({c}, 0.3, 1);
  r.kernel(k);
}

void canon_forward(CaseRun& r, int64_t b, int64_t t, int64_t c) {
  r.kernel(CanonForward{r.output("y", {b, t, c}, r.type()), r.input({b, t, c}),
                        r.wide_input({kCanonTaps * c}, 0.5)});
}

void canon_backward(CaseRun& r, int64_t b, int64_t t, int64_t c) {
  CanonBackward k;
  k.dx = r.gradient("dx", {b, t, c});
  k.dw = r.wide_gradient("dw", {kCanonTaps * c});
  k.dy = r.input({b, t, c});
  k.x = r.input({b, t, c});
  k.w = r.wide_input({kCanonTaps * c}, 0.5);
  r.kernel(k);
}

void add_canon(Table& t, int64_t b, int64_t time, int64_t c, bool realistic = false) {
  const std::string text = str("B ", b, ", T ", time, ", C ", c);
  t.put<CanonForward>(realistic, case_of(canon_forward, b, time, c), text);
  t.put<CanonBackward>(realistic, case_of(canon_backward, b, time, c), text);
}

void mix_forward(CaseRun& r, int64_t n, int64_t c, int terms) {
  MixForward k;
  k.y = r.output("y", {n, c}, r.type());
  for (int i = 0; i < terms; ++i) k.x.push_back(r.input({n, c}));
  for (int i = 0; i < terms; ++i) k.w.push_back(r.wide_input({c}));
  r.kernel(k);
}

void mix_backward(CaseRun& r, int64_t n, int64_t c, int terms) {
  MixBackward k;
  for (int i = 0; i < terms; ++i) k.dx.push_back(r.gradient("dx", {n, c}));
  for (int i = 0; i < terms; ++i) k.dw.push_back(r.wide_gradient("dw", {c}));
  k.dy = r.input({n, c});
  for (int i = 0; i < terms; ++i) k.x.push_back(r.input({n, c}));
  for (int i = 0; i < terms; ++i) k.w.push_back(r.wide_input({c}));
  r.kernel(k);
}

void add_mix(Table& t, int64_t n, int64_t c, int terms, bool realistic = false) {
  const std::string text = str("N ", n, ", C ", c, ", ", terms, " terms");
  t.put<MixForward>(realistic, case_of(mix_forward, n, c, terms), text);
  t.put<MixBackward>(realistic, case_of(mix_backward, n, c, terms), text);
}

enum class Recomputed : uint8_t { no, apart, in_place_of_h };  // y in the backward pass

struct Around {
  double p = 0.4;
  bool bias = true;
  bool norm = true;
  bool stream = true;  // a gradient reaches the sum otherwise, too
  bool x = true;       // its gradient is wanted
  bool branch = true;  // its gradient is wanted
  Recomputed recomputed = Recomputed::no;
};

void residual_forward(CaseRun& r, int64_t n, int64_t c, const Around& with) {
  ResidualForward k;
  k.h = r.output("h", {n, c}, r.type());
  k.x = r.input({n, c}, 2, 0.5);
  k.branch = r.input({n, c});
  if (with.bias) k.bias = r.input({c});
  if (with.norm) {
    k.y = r.output("y", {n, c}, r.type());
    k.mean = r.output("mean", {n}, r.wide_type());
    r.through_rounded();
    k.rstd = r.output("rstd", {n}, r.wide_type());
    r.through_rounded();
    k.w = r.wide_input({c}, 0.3, 1);
    k.b = r.wide_input({c});
  }
  k.eps = 1e-2;
  k.p = with.p;
  k.site = 5;
  k.step = r.step();
  r.kernel(k);
}

void residual_backward(CaseRun& r, int64_t n, int64_t c, const Around& with) {
  ResidualBackward k;
  if (with.norm && with.x) k.dx = r.gradient("dx", {n, c});
  if (with.branch) k.dbranch = r.gradient("dbranch", {n, c});
  if (with.bias) k.dbias = r.wide_gradient("dbias", {c});
  if (with.bias && with.norm) r.through_rounded();
  if (with.stream) k.dh = r.input({n, c});
  if (with.norm) {
    k.dw = r.wide_gradient("dw", {c});
    k.db = r.wide_gradient("db", {c});
    k.dy = r.input({n, c});
    if (with.recomputed == Recomputed::apart) k.y = r.output("y", {n, c}, r.type());
    if (with.recomputed == Recomputed::in_place_of_h) k.y = r.replaced("y", {n, c}, 2);
    k.h = with.recomputed == Recomputed::in_place_of_h ? k.y : r.input({n, c}, 2, 0.5);
    k.mean = r.wide_input({n}, 0.1, 0.5);
    k.rstd = r.wide_input({n}, 0.05, 0.5);
    k.w = r.wide_input({c}, 0.3, 1);
    if (k.y) k.b = r.wide_input({c});
  }
  k.p = with.p;
  k.site = 5;
  k.step = r.step();
  r.kernel(k);
}

std::string rows(int64_t n, int64_t c) { return str("N ", n, ", C ", c); }

void add_residual_backward(Table& t, int64_t n, int64_t c, const Around& with, const char* text,
                           bool realistic = false) {
  t.put<ResidualBackward>(realistic, case_of(residual_backward, n, c, with), rows(n, c), text);
}

void add_residual(Table& t, int64_t n, int64_t c, const Around& with, const char* text,
                  bool realistic = false) {
  t.put<ResidualForward>(realistic, case_of(residual_forward, n, c, with), rows(n, c), text);
  add_residual_backward(t, n, c, with, text, realistic);
}

void add_norm(Table& t, int64_t n, int64_t c, bool realistic = false) {
  t.put<LayerNormForward>(realistic, case_of(layernorm_forward, n, c), rows(n, c));
  t.put<LayerNormBackward>(realistic, case_of(layernorm_backward, n, c, true, true), rows(n, c));
}

// ---- QK-norm and rotary positions: head sizes that fill a group of lanes or not, odd numbers of
// heads

struct Sizes {
  int64_t b, t, heads, qk, v;

  Shape packed() const { return {b, t, heads * (2 * qk + v)}; }

  Shape rstd() const { return {b * t, 2 * heads}; }
};

enum class Place : uint8_t { row, offsets, positions, sampled };

struct Parts {
  bool norm = true, rotary = true;
  Place place = Place::row;
  bool gain = false;

  std::string text() const {
    const char* places[] = {"", ", offsets", ", positions", ", positions, one row"};
    return str(norm ? ", norm" : "", rotary ? ", rotary" : "", places[static_cast<int>(place)],
               gain ? ", gain" : "");
  }
};

template <class Kernel>
void set_form(CaseRun& r, Kernel& k, const Sizes& s, const Parts& parts) {
  k.heads = s.heads;
  k.qk_size = s.qk;
  k.form.norm = parts.norm;
  k.form.eps = 1e-2;
  if (parts.gain) k.form.gain = r.wide_input({s.heads}, 0.1, 1);
  if (parts.rotary) k.form.table = r.wide_input({s.t + 3, s.qk / 2, 2}, 0.7);
  if (parts.place == Place::offsets) k.form.offsets = r.integers({s.b}, 0, 3 * s.t);
  if (parts.place >= Place::positions) k.form.positions = r.integers({s.b, s.t + 5}, 0, 3 * s.t);
  if (parts.place == Place::sampled) k.form.first_at = r.numbers({4});
}

void forward(CaseRun& r, const Sizes& s, const Parts& parts) {
  QkForward k;
  k.qkv = r.replaced("qkv", s.packed(), 2);
  if (parts.norm) k.rstd = r.output("rstd", s.rstd(), r.wide_type());
  set_form(r, k, s, parts);
  r.kernel(k);
}

void backward(CaseRun& r, const Sizes& s, const Parts& parts) {
  QkBackward k;
  k.dqkv = r.replaced("dqkv", s.packed());
  if (parts.norm) k.y = r.input(s.packed());
  if (parts.norm) k.rstd = r.wide_input(s.rstd(), 0.1, 0.6);
  if (parts.gain) k.dgain = r.wide_gradient("dgain", {s.heads});
  if (parts.gain) k.row_dgain = r.scratch({s.b * s.t, s.heads}, r.wide_type());
  set_form(r, k, s, parts);
  r.kernel(k);
}
}  // namespace

void add_norm_cases(Table& t) {
  const Around in_place{.recomputed = Recomputed::in_place_of_h};
  for (const int64_t c :
       {1, 7, 31, 32, 33, 255, 256, 257, 512, 520, 1000, 1024, 1032, 4096, 4100}) {
    const int64_t n = c % 32 + 1;
    add_norm(t, n, c);
    add_residual(t, n, c, {}, ", p 0.4");
    add_residual_backward(t, n, c, in_place, ", p 0.4, y in place of h");
  }
  for (const int64_t c : {40, 260, 512, 1037}) {
    add_residual(t, 33, c, {.p = 0}, ", p 0");
    add_residual(t, 33, c, {.bias = false}, ", p 0.4, no bias");
    add_residual(t, 33, c, {.norm = false}, ", p 0.4, no norm");
    add_residual_backward(t, 33, c, {.stream = false}, ", p 0.4, dy alone");
    add_residual_backward(t, 33, c, {.x = false}, ", p 0.4, no dx");
    add_residual_backward(t, 33, c, {.p = 0, .branch = false}, ", p 0, no dbranch");
    add_residual_backward(t, 33, c,
                          {.stream = false, .branch = false, .recomputed = Recomputed::apart},
                          ", p 0.4, dy alone, no dbranch, y");
  }
  t.add<LayerNormBackward>(case_of(layernorm_backward, 33, 65, true, false), rows(33, 65),
                           ", dx alone");
  t.add<LayerNormBackward>(case_of(layernorm_backward, 1025, 72, false, true), rows(1025, 72),
                           ", dw and db alone");
  for (const int64_t c : {40, 264, 600}) {  // several rows a warp
    t.add<LayerNormBackward>(case_of(layernorm_backward, 4301, c, true, true), rows(4301, c));
    add_residual(t, 4301, c, {}, ", p 0.4");
  }
  add_residual(t, 1100, 37, {}, ", p 0.4");
  for (const auto& [b, time, c] : {std::array<int64_t, 3>{1, 1, 1},
                                   {2, 3, 8},
                                   {5, 2, 33},
                                   {3, 31, 65},
                                   {2, 129, 256},
                                   {7, 33, 264},
                                   {300, 9, 40},
                                   {3, 2049, 72},
                                   {1, 4301, 512}})
    add_canon(t, b, time, c);
  for (const int terms : {1, 2, 3})
    for (const auto& [n, c] :
         {std::pair{1, 1}, {3, 8}, {33, 65}, {129, 256}, {1100, 37}, {4301, 264}})
      add_mix(t, n, c, terms);
  constexpr int64_t kTokens = 4 * 12288;
  add_mix(t, kTokens / 2, 512, 2, true);
  add_mix(t, kTokens / 2, 512, 3, true);
  add_canon(t, 32, 768, 512, true);
  add_norm(t, kTokens, 512, true);
  for (const int64_t c : {256, 512}) {
    add_residual(t, kTokens, c, {}, ", p 0.4", true);
    add_residual_backward(t, kTokens, c, in_place, ", p 0.4, y in place of h", true);
  }
}

void add_rotary_cases(Table& t) {
  const auto add = [&](bool realistic, const Sizes& s, const Parts& parts) {
    const std::string text =
        str("B ", s.b, ", T ", s.t, ", H ", s.heads, ", D ", s.qk, " and ", s.v, parts.text());
    t.put<QkForward>(realistic, case_of(forward, s, parts), text);
    t.put<QkBackward>(realistic, case_of(backward, s, parts), text);
  };
  const Parts variants[] = {{},
                            {.rotary = false},
                            {.norm = false},
                            {.place = Place::offsets},
                            {.place = Place::positions},
                            {.place = Place::offsets, .gain = true},
                            {.norm = false, .place = Place::sampled}};
  for (const Sizes& s : {Sizes{1, 1, 1, 8, 8},
                         {2, 33, 3, 8, 16},
                         {3, 7, 2, 40, 24},
                         {1, 65, 5, 64, 64},
                         {2, 5, 1, 256, 8},
                         {1, 31, 9, 96, 32},
                         {1, 12, 2, 136, 8},
                         {2, 3, 33, 24, 8}})
    for (const Parts& parts : variants) add(false, s, parts);
  add(true, {4, 12288, 8, 64, 64}, {});
  add(true, {4, 12288, 8, 64, 64}, {.rotary = false});
}
}  // namespace weft
