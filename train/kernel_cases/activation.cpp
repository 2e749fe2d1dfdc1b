// SPDX-License-Identifier: MIT
// GEMMs with an activation in the epilogue.
#include "kernels/linear/activation.h"
#include "train/kernel_cases/kernel_cases.h"

namespace weft {
namespace {

struct Sizes {
  std::int64_t n, inner, m;
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
void linear_activation_backward(CaseRun& r, const Sizes& s, bool all, LinearActivationForm form, Activation f,
                                bool in_place) {
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
         LinearActivationForm form = LinearActivationForm::automatic, Activation f = Activation::gelu) {
  const auto text = [&](const char* inner, const char* alone) {
    return str("N ", s.n, ", ", inner, " ", s.inner, ", M ", s.m, all ? "" : alone,
               form == LinearActivationForm::automatic ? "" : str(", ", name_of(form)),
               f == Activation::gelu ? "" : str(", ", name_of(f)));
  };
  t.put<LinearActivationForward>(realistic, case_of(linear_activation_forward, s, all, form, f),
                                 text("K", ", y alone"));
  t.put<LinearActivationBackward>(realistic, case_of(linear_activation_backward, s, all, form, f, false),
                                  text("C", ", dh alone"));
}

}  // namespace

// Sizes whose inner axis and M are multiples of 8 run on Hopper's own kernel: tiles of 128 rows, groups of
// 256 columns. Its 66 clusters take several tiles each of 8,600 rows, and several groups of 16,904 columns.
void add_linear_activation_cases(Table& t) {
  constexpr Sizes awkward[] = {
      {1, 1, 1},       {1, 33, 31},    {31, 32, 33},    {33, 31, 65},    {65, 72, 63},    {130, 64, 128},
      {129, 200, 264}, {7, 520, 257},  {1, 8, 8},       {300, 512, 384}, {257, 192, 256}, {2, 1000, 1},
      {1000, 64, 520}, {127, 264, 72}, {400, 504, 648}, {8600, 40, 24},  {3, 8, 16904}};
  for (const Sizes& s : awkward) {
    add(t, s, true, false);
    add(t, s, false, false);
  }
  add(t, {300, 128, 384}, true, false, LinearActivationForm::composed);
  for (const Sizes& s : {Sizes{33, 31, 65}, Sizes{300, 512, 384}, Sizes{1000, 64, 520}})
    for (const auto form : {LinearActivationForm::automatic, LinearActivationForm::composed})
      for (const Activation f : {Activation::gelu, Activation::relu2})
        t.add<LinearActivationBackward>(case_of(linear_activation_backward, s, true, form, f, true), "N ",
                                        s.n, ", C ", s.inner, ", M ", s.m, ", y in place of h, ",
                                        name_of(form), ", ", name_of(f));
  for (const Sizes& s : {Sizes{1, 8, 8}, Sizes{31, 32, 33}, Sizes{300, 512, 384}, Sizes{127, 264, 72},
                         Sizes{400, 504, 648}, Sizes{257, 192, 256}})
    for (const bool all : {true, false})
      add(t, s, all, false, LinearActivationForm::automatic, Activation::relu2);
  constexpr std::int64_t tokens = 4 * 12288;
  for (const Sizes& s : {Sizes{tokens, 512, 2048}, Sizes{tokens, 256, 512}}) {
    for (const Activation f : {Activation::gelu, Activation::relu2})
      add(t, s, true, true, LinearActivationForm::automatic, f);
    add(t, s, true, true, LinearActivationForm::composed);
  }
}

}  // namespace weft
