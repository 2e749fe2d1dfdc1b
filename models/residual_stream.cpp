// SPDX-License-Identifier: MIT
// Who adds the branch that waits.
#include "models/residual_stream.h"

#include <utility>

namespace weft {

Var ResidualStream::value(Ctx& ctx) {
  if (const auto branch = std::exchange(waiting_, {})) x_ = residual_dropout(ctx, x_, *branch, dropout_);
  return x_;
}

Var ResidualStream::normed(Ctx& ctx, const ParameterStore& store, const LayerNorm& norm) {
  const auto branch = std::exchange(waiting_, {});
  if (!branch) return norm.forward(ctx, store, x_);
  SumAndNorm y = norm.forward(ctx, store, x_, *branch, dropout_);
  x_ = std::move(y.sum);
  return y.norm;
}

void ResidualStream::add(Affine branch) {
  WEFT_CHECK(!waiting_, "residual stream: a branch is added before the one ahead of it was read");
  waiting_ = std::move(branch);
}

}  // namespace weft
