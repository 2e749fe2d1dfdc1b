// SPDX-License-Identifier: MIT
// The residual stream x of a pre-norm model, to which blocks add their branches. A branch that was added
// waits until x is read: where that is by a norm, both are one pass over memory (kernels/layers/layernorm.h).
#pragma once

#include <optional>

#include "models/layers.h"

namespace weft {

class ResidualStream {
 public:
  ResidualStream(Var x, double dropout) : x_(std::move(x)), dropout_(dropout) {}

  Var value(Ctx&);                                                 // x
  Var normed(Ctx&, const ParameterStore&, const LayerNorm& norm);  // norm(x)
  void add(Affine branch);                                         // x += dropout(branch)

 private:
  Var x_;
  std::optional<Affine> waiting_;
  double dropout_;
};

}  // namespace weft
