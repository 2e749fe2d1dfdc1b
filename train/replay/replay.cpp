// SPDX-License-Identifier: MIT
#include "train/replay/replay.h"

#include "kernels/layers/pointwise.h"
#include "kernels/optimizer/reduce.h"
#include "train/trainer/fingerprints.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
constexpr const char* kGradient = "the gradient of";

// Gradients first: what differs there differs in the rest as well. With sharing, what this
// process keeps.
std::vector<Replay::StatePart> Replay::state() const {
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
  parts.push_back({"loss, norm and scales", step_.results_on_device()});
  if (const Tensor& scale = step_.loss_scale_on_device())
    parts.push_back({"the state of the loss scale", scale});
  return parts;
}

Replay::Replay(TrainStep& step)
    : step_(step),
      device_(step.device()),
      store_(step.store()),
      ctx_{.queue = &device_.queue, .pool = device_.pool.get()},
      state_(state()) {
  if (step.shared()) {
    own_ = Tensor(*device_.pool, {sizeof(uint64_t) / sizeof(float)}, DType::f32, "replay");
    step.shared()->on_own_gradients = [sum = static_cast<uint64_t*>(own_.view().data)](
                                          Ctx& ctx, const GradientRange& range, const Tensor& x) {
      ctx.launch(Fingerprint{.sum = sum, .x = x, .first = range.begin});
    };
    state_.push_back({"a sum of gradients", own_});
  }
  for (StatePart& part : state_)
    part.spare = Tensor(*device_.pool, {part.now.size()}, part.now.dtype(), "replay");
}

Replay::Result Replay::run_twice(const BatchSource& source, int64_t step,
                                 const std::function<void()>& between) {
  if (own_) device_.zero(own_);  // each run adds to it
  for (const StatePart& part : state_) ctx_.launch(Add{.out = {part.spare}, .x = part.now});
  step_.rehearse(source, step, between);
  exchange_with_spares();
  step_.run(source, step, between);
  std::vector<TensorView> both;
  for (const StatePart& part : state_) both.insert(both.end(), {part.now, part.spare});
  const std::vector<uint64_t> sums = fingerprints(device_, both);
  Result result;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    if (sums[2 * i] == sums[2 * i + 1]) continue;
    if (result.difference.empty()) result.difference = first_difference(state_[i]);
    result.own = own_ && i + 1 == state_.size();
  }
  return result;
}

void Replay::exchange_with_spares() {
  constexpr int64_t kPiece = 4 << 20;  // elements
  for (const StatePart& part : state_)
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
std::string Replay::first_difference(const StatePart& part) {
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

namespace {
// A process whose own gradients differ is named before those that add them.
void verify(Replay& replay, const Update& update) {
  const Replay::Result mine = replay.run_twice(update.source, update.step, update.between);
  std::string first = update.parallel.first_message(mine.own ? mine.difference : "");
  if (first.empty()) first = update.parallel.first_message(mine.difference);
  if (first.empty()) return;
  fail("step ", update.step + 1, " was run twice from one state, and the bits differ: ", first,
       "; a GPU, its memory or a kernel computes wrongly. ", nothing_saved(update.saved_step),
       " with --resume, on another device if this comes again");
}
}  // namespace

TrainHooks replay_every(int64_t every) {
  TrainHooks hooks{.name = "replay"};
  hooks.memory = replay_memory;
  hooks.updates = [every](TrainStep& step) -> RunUpdate {
    return [every, replay = std::make_shared<Replay>(step)](const Update& update) {
      if ((update.step + 1) % every != 0) return false;
      verify(*replay, update);
      return true;
    };
  };
  return hooks;
}
}  // namespace weft
