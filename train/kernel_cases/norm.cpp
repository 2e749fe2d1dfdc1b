// SPDX-License-Identifier: MIT
// Layer normalisation, alone and behind a residual connection: awkward sizes to verify, and those of the text
// and of the image model to time.
#include "kernels/layers/layernorm.h"
#include "train/kernel_cases/table.h"

namespace weft {
namespace {

Build layernorm_forward(std::int64_t n, std::int64_t c) {
  return [=](CaseRun& r) {
    LayerNormForward k;
    k.y = r.output("y", {n, c}, r.type());
    k.mean = r.output("mean", {n}, r.wide_type());
    k.rstd = r.output("rstd", {n}, r.wide_type());
    k.x = r.input({n, c}, 2, 0.5);
    k.w = r.wide_input({c}, 0.3, 1);
    k.b = r.wide_input({c});
    k.eps = 1e-2;
    r.kernel(k);
  };
}

Build layernorm_backward(std::int64_t n, std::int64_t c, bool with_dx, bool with_parameters) {
  return [=](CaseRun& r) {
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
  };
}

enum class Recomputed : std::uint8_t { no, apart, in_place_of_h };  // y in the backward pass

struct Around {
  double p = 0.4;
  bool bias = true;
  bool norm = true;
  bool stream = true;  // a gradient reaches the sum otherwise, too
  bool x = true;       // and x's is wanted
  bool branch = true;  // and the branch's
  Recomputed recomputed = Recomputed::no;
};

Build residual_forward(std::int64_t n, std::int64_t c, const Around& with) {
  return [=](CaseRun& r) {
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
  };
}

Build residual_backward(std::int64_t n, std::int64_t c, const Around& with) {
  return [=](CaseRun& r) {
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
  };
}

std::string rows(std::int64_t n, std::int64_t c) { return str("N ", n, ", C ", c); }

void add_residual(Table& t, std::int64_t n, std::int64_t c, const Around& with, const char* text) {
  t.add<ResidualForward>(residual_forward(n, c, with), rows(n, c), text);
  t.add<ResidualBackward>(residual_backward(n, c, with), rows(n, c), text);
}

}  // namespace

void add_norm_cases(Table& t) {
  for (const std::int64_t c : {1, 7, 31, 32, 33, 255, 256, 257, 512, 520, 1000, 1024, 1032, 4096, 4100}) {
    const std::int64_t n = c % 32 + 1;
    t.add<LayerNormForward>(layernorm_forward(n, c), rows(n, c));
    t.add<LayerNormBackward>(layernorm_backward(n, c, true, true), rows(n, c));
    add_residual(t, n, c, {}, ", p 0.4");
    t.add<ResidualBackward>(residual_backward(n, c, {.recomputed = Recomputed::in_place_of_h}), rows(n, c),
                            ", p 0.4, y in place of h");
  }
  for (const std::int64_t c : {40, 260, 512, 1037}) {
    add_residual(t, 33, c, {.p = 0}, ", p 0");
    add_residual(t, 33, c, {.bias = false}, ", p 0.4, no bias");
    add_residual(t, 33, c, {.norm = false}, ", p 0.4, no norm");
    t.add<ResidualBackward>(residual_backward(33, c, {.stream = false}), rows(33, c), ", p 0.4, dy alone");
    t.add<ResidualBackward>(residual_backward(33, c, {.x = false}), rows(33, c), ", p 0.4, no dx");
    t.add<ResidualBackward>(residual_backward(33, c, {.p = 0, .branch = false}), rows(33, c),
                            ", p 0, no dbranch");
    t.add<ResidualBackward>(
        residual_backward(33, c, {.stream = false, .branch = false, .recomputed = Recomputed::apart}),
        rows(33, c), ", p 0.4, dy alone, no dbranch, y");
  }
  t.add<LayerNormBackward>(layernorm_backward(33, 65, true, false), rows(33, 65), ", dx alone");
  t.add<LayerNormBackward>(layernorm_backward(1025, 72, false, true), rows(1025, 72), ", dw and db alone");
  for (const std::int64_t c : {40, 264, 600}) {  // several rows a warp
    t.add<LayerNormBackward>(layernorm_backward(4301, c, true, true), rows(4301, c));
    add_residual(t, 4301, c, {}, ", p 0.4");
  }
  add_residual(t, 1100, 37, {}, ", p 0.4");
  constexpr std::int64_t kTokens = 4 * 12288;
  t.time<LayerNormForward>(layernorm_forward(kTokens, 512), rows(kTokens, 512));
  t.time<LayerNormBackward>(layernorm_backward(kTokens, 512, true, true), rows(kTokens, 512));
  for (const std::int64_t c : {256, 512}) {
    t.time<ResidualForward>(residual_forward(kTokens, c, {}), rows(kTokens, c), ", p 0.4");
    t.time<ResidualBackward>(residual_backward(kTokens, c, {}), rows(kTokens, c), ", p 0.4");
    t.time<ResidualBackward>(residual_backward(kTokens, c, {.recomputed = Recomputed::in_place_of_h}),
                             rows(kTokens, c), ", p 0.4, y in place of h");
  }
}

}  // namespace weft
