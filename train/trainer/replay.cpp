// SPDX-License-Identifier: MIT
// Replay: an update run twice from one state gives the same bits, unless hardware or a kernel is at
// fault.
#include "kernels/diagnostics/count_non_finite.h"
#include "kernels/layers/pointwise.h"
#include "train/trainer/step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace weft {
constexpr const char* kGradient = "the gradient of";

// Gradients first: what differs there differs in the rest as well. With shards, what this process
// keeps.
std::vector<TrainStep::StatePart> TrainStep::state() const {
  std::vector<StatePart> parts;
  const auto add = [&](const char* what, const Tensor& block) {
    for (const OwnPart& own : store_.own_parts())
      if (block && own.size > 0) parts.push_back({what, store_.slice_of(block, own), own.begin});
  };
  add(kGradient, store_.gradients());
  add("Adam's m of", store_.m());
  add("Adam's v of", store_.v());
  if (store_.compute().dtype() != store_.master().dtype())
    add("the master weight", store_.master());
  parts.push_back({"the weight", store_.compute(), 0});
  add("the moving average of", store_.ema());
  parts.push_back({"loss, norm and scales", results_});
  if (loss_scale_) parts.push_back({"the state of the loss scale", loss_scale_});
  return parts;
}

void TrainStep::prepare_replay() {
  replayed_ = state();
  if (gradient_sum_) replayed_.push_back({"a sum of gradients", gradient_sum_->keep_fingerprint()});
  for (StatePart& part : replayed_)
    part.spare = Tensor(*device_.pool, {part.now.size()}, part.now.dtype(), "replay");
}

TrainStep::Replay TrainStep::run_twice(const BatchSource& source, int64_t step,
                                       const std::function<void()>& between) {
  WEFT_CHECK(!replayed_.empty(), "run_twice() comes after prepare_replay()");
  for (const StatePart& part : replayed_) ctx_.launch(Add{.out = {part.spare}, .x = part.now});
  launch_update(source, step, between, false);
  exchange_with_spares();
  run(source, step, between);
  std::vector<TensorView> both;
  for (const StatePart& part : replayed_) both.insert(both.end(), {part.now, part.spare});
  const std::vector<uint64_t> sums = fingerprints(device_, both);
  Replay replay;
  for (std::size_t i = 0; i < replayed_.size(); ++i) {
    if (sums[2 * i] == sums[2 * i + 1]) continue;
    if (replay.difference.empty()) replay.difference = first_difference(replayed_[i]);
    replay.own = gradient_sum_ && i + 1 == replayed_.size();
  }
  return replay;
}

void TrainStep::exchange_with_spares() {
  constexpr int64_t kPiece = 4 << 20;  // elements
  for (const StatePart& part : replayed_)
    for (int64_t first = 0; first < part.now.size(); first += kPiece) {
      const Shape shape{std::min(kPiece, part.now.size() - first)};
      const Tensor now = part.now.slice(first, shape), spare = part.spare.slice(first, shape),
                   between = ctx_.empty(shape, now.dtype(), "replay");
      ctx_.launch(Add{.out = {between}, .x = now});
      ctx_.launch(Add{.out = {now}, .x = spare});
      ctx_.launch(Add{.out = {spare}, .x = between});
    }
}

// The parameters of gradients are searched in the order of the backward pass.
std::string TrainStep::first_difference(const StatePart& part) {
  const auto element = static_cast<std::size_t>(size_of(part.now.dtype()));
  std::vector<char> first(part.now.view().bytes()), second(first.size());
  device_.download(first.data(), part.spare);
  device_.download(second.data(), part.now);
  const auto bits = [&](const std::vector<char>& run, int64_t i) {
    uint64_t word = 0;
    std::memcpy(&word, &run[static_cast<std::size_t>(i) * element], element);
    return word;
  };
  // Names the first of elements [begin, end), counted from `zero`.
  const auto found = [&](int64_t begin, int64_t end, int64_t zero, const std::string& name) {
    for (int64_t i = std::max<int64_t>(begin, 0); i < std::min(end, part.now.size()); ++i)
      if (bits(first, i) != bits(second, i))
        return str(part.what, name, ", element ", i - zero, ": 0x", std::hex, bits(first, i),
                   " and 0x", bits(second, i));
    return std::string();
  };
  const auto params = store_.params();
  for (std::size_t i = 0; part.begin >= 0 && i < params.size(); ++i) {
    const ParamInfo& p = params[part.what == kGradient ? params.size() - 1 - i : i];
    const int64_t begin = p.offset - part.begin;
    if (std::string text = found(begin, begin + p.size, begin, " " + p.name); !text.empty())
      return text;
  }
  return found(0, part.now.size(), 0, "");
}

// ---- when a loss or a gradient is not finite: which tensor it was first ----

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
  if (store_.shards().empty()) found = first_non_finite(store_.master(), "the weight", false);
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
