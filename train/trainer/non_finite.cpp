// SPDX-License-Identifier: MIT
// When a loss or a gradient is not finite: which tensor it was first.
#include "kernels/diagnostics/count_non_finite.h"
#include "train/trainer/step.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
// The first parameter whose slice of `block` has a value that is not finite, as text; "" when all
// are finite.
std::string TrainStep::first_non_finite(const Tensor& block, const char* what, bool backwards) {
  const auto params = store_.params();
  const Tensor count(*device_.pool, {1}, DType::i32, "step");
  for (std::size_t i = 0; i < params.size(); ++i) {
    const ParamInfo& param = params[backwards ? params.size() - 1 - i : i];
    ctx_.launch(CountNonFinite{count, block.slice(param.offset, param.shape)});
    int32_t found = 0;
    device_.download(&found, count);
    if (found > 0) return str(what, " ", param.name, " (", found, " of ", param.size, " values)");
  }
  return "";
}

std::string TrainStep::non_finite_loss() {
  Ctx ctx = ctx_;
  const std::vector<double> losses =
      to_host(device_, model_.token_losses(ctx, batch_.sequences()).value);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (std::isfinite(losses[i])) continue;
    const auto context = static_cast<std::size_t>(shape_.context);
    return str("an activation: all weights are finite, the loss of token ", i % context,
               " of sequence ", i / context, " is not (WEFT_DEBUG=3 names the kernel)");
  }
  return "";
}

std::string TrainStep::find_non_finite(const BatchSource& source, int64_t step, double loss_scale) {
  device_.synchronize();
  if (loss_scale_) set_loss_scale({.scale = loss_scale});
  set_shape(step_shape(config_, step));
  std::string found;
  if (store_.has_whole(store_.master()))
    found = first_non_finite(store_.master(), "the weight", false);
  if (found.empty() && store_.compute().dtype() != store_.master().dtype())
    found = first_non_finite(
        store_.compute(),
        str("the ", name_of(store_.compute().dtype()), " copy of the weight").c_str(), false);
  for (int64_t micro = 0; found.empty() && micro < shape_.accumulation; ++micro) {
    prepare(source, step, micro);
    upload();
    found = non_finite_loss();
    if (!found.empty()) break;
    store_.begin_step();
    forward_backward(false);
    Ctx ctx = ctx_;
    store_.finish_gradients(ctx);
    found = first_non_finite(store_.gradients(), "the gradient of", true);
  }
  return found;
}
}  // namespace weft
