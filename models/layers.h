// SPDX-License-Identifier: MIT
// Layers: structs of parameters with a forward(). No base class, no registry: ParameterStore::add has listed the
// parameters already, and a layer holds only their handles.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/ops.h"
#include "src/parameters.h"
#include "src/pattern.h"

namespace weft {

struct Linear {
  Param weight, bias;  // (out, in), (out)
  Linear(ParameterStore&, const std::string& name, std::int64_t in, std::int64_t out, double std, bool with_bias = true);
  Var forward(Ctx&, const ParameterStore&, const Var& x) const;
};

struct LayerNorm {
  Param weight, bias;  // (C)
  double eps = 1e-5;
  LayerNorm(ParameterStore&, const std::string& name, std::int64_t size, double eps = 1e-5);
  Var forward(Ctx&, const ParameterStore&, const Var& x) const;
};

}  // namespace weft
