// SPDX-License-Identifier: MIT
// The activation f of an MLP and its derivative, for every kernel that applies it.
#pragma once

#include <cstdint>

namespace weft {
// gelu   f(v) = v sigmoid(1.702 v)   quick GELU (Hendrycks & Gimpel 2016, arXiv 1606.08415)
// relu2  f(v) = max(v, 0)^2          squared ReLU (So et al. 2021, "Primer", arXiv 2109.08668)
// In f16, relu2 is inf from v = 256 on. Loss scaling then skips the update, as after any overflow.
enum class Activation : uint8_t { gelu, relu2 };

constexpr const char* name_of(Activation f) { return f == Activation::relu2 ? "relu2" : "gelu"; }

inline constexpr double kGeluSlope = 1.702;

template <class W>
struct Activated {
  W y, slope;  // f(v), f'(v)
};

// NaN stays NaN.
template <class W>
constexpr Activated<W> relu2(W v) {
  const W positive = v < 0 ? 0 : v;
  return {positive * positive, 2 * positive};
}

// f and f' of v for f = kF. `gelu(v)` computes gelu, as each kernel has an exponential of its own.
template <Activation kF, class W, class Gelu>
constexpr Activated<W> activated(W v, const Gelu& gelu) {
  if constexpr (kF == Activation::relu2) return relu2(v);
  return gelu(v);
}

// Calls f.operator()<kF>() with kF = which.
template <class F>
void dispatch_activation(Activation which, F&& f) {
  which == Activation::relu2 ? f.template operator()<Activation::relu2>()
                             : f.template operator()<Activation::gelu>();
}
}  // namespace weft
