// SPDX-License-Identifier: MIT
// Updates run twice, with flips of the device's memory.
#pragma once

#include "tests/train/trainer/faults.h"
#include "tests/train/trainer/steps.h"
#include "train/replay/replay.h"
#include "train/trainer/fingerprints.h"

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace weft {
// Everything that an update leaves.
inline std::vector<TensorView> state_of(const ParameterStore& store) {
  return {store.master(), store.compute(), store.m(), store.v(), store.ema()};
}

// Steps that begin in the same state again and again, with flips of their memory.
class Flips {
 public:
  static constexpr int64_t kWarmUp = 4;  // on a GPU, graphs from the third on

  Flips(const Config& config, const std::string& on, DType dtype, unsigned seed)
      : steps(config, on, dtype),
        random_(seed) {
    steps.run(kWarmUp);
    replace_pool();
    steps.step.emplace(*steps.device, *steps.model, steps.store, steps.config);
    replay.emplace(*steps.step);
    recorded_ = true;
    steps.run(kWarmUp);
    recorded_ = false;
    for (const TensorView& block : blocks()) before_.push_back(copy_of(block));
  }

  void restore() {
    for (std::size_t i = 0; i < before_.size(); ++i)
      launch(steps.device->queue, Add{.out = {blocks()[i]}, .x = before_[i]});
  }

  // Of one bit of weights, gradients, optimizer or (on a CPU) activations.
  std::function<void()> draw() {
    std::vector<TensorView> targets = state_of(steps.store);
    targets.push_back(steps.store.gradients());
    const std::size_t kind = below(targets.size() + 3);
    TensorView target = kind < targets.size() || activations_.empty()
                            ? targets[kind % targets.size()]
                            : activations_[below(activations_.size())];
    const auto bit = static_cast<int64_t>(below(static_cast<std::size_t>(8 * target.bytes())));
    return [this, target, bit] { flip_bit(*steps.device, target.data, bit); };
  }

  std::size_t below(std::size_t end) { return random_() % end; }

  std::vector<uint64_t> fingerprint() { return fingerprints(*steps.device, state_of(steps.store)); }

  std::string run_twice(const std::function<void()>& between = {}) {
    return replay->run_twice(steps.source, steps.next, between).difference;
  }

  Steps steps;
  std::optional<Replay> replay;

 private:
  std::vector<TensorView> blocks() const {
    std::vector<TensorView> all = state_of(steps.store);
    all.push_back(steps.store.gradients());
    return all;
  }

  Tensor copy_of(const TensorView& block) {
    const Tensor copy(*steps.device->pool, {block.size()}, block.dtype);
    launch(steps.device->queue, Add{.out = {copy}, .x = block});
    return copy;
  }

  // So that activations are known: those of an update, but for small ones, which hold tokens and
  // scalars.
  void replace_pool() {
    if (steps.device->is_cuda()) return;
    steps.step.reset();
    const auto allocate = [this](std::size_t bytes) {
      void* p = std::aligned_alloc(256, bytes);
      if (recorded_ && bytes > 2048)
        activations_.push_back({p, DType::u8, 1, {static_cast<int64_t>(bytes), 1, 1, 1, 1}});
      return p;
    };
    steps.device->pool =
        std::make_shared<MemoryPool>("cpu", allocate, [](void* p) { std::free(p); });
  }

  std::mt19937 random_;
  bool recorded_ = false;
  std::vector<TensorView> activations_;
  std::vector<Tensor> before_;
};
}  // namespace weft
