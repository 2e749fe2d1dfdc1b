// SPDX-License-Identifier: MIT
// Replay: an update run twice from one state gives the same bits, unless hardware or a kernel is at
// fault.
#pragma once

#include "train/trainer/extension.h"
#include "train/trainer/step.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace weft {
// What `train --verify-every` takes besides: another copy of what an update changes.
inline std::size_t replay_memory(const MemoryPlan& plan) {
  return plan.weights + plan.gradients + plan.optimizer;
}

class Replay {
 public:
  // Takes memory for a second state. Before the first update of `step`, which outlives this.
  explicit Replay(TrainStep& step);
  Replay& operator=(Replay&&) = delete;  // nor copied: the step's graphs write to its memory

  struct Result {
    std::string difference;  // the first: tensor, element and bits; "" when all bits are equal
    bool own = false;        // this process's own gradients differ, before they are added up
  };

  // Runs `step` like TrainStep::run(), again from the state before it, and compares the bits of
  // gradients and weights. Waits.
  Result run_twice(const BatchSource&, int64_t step, const std::function<void()>& between = {});

 private:
  // Part of the state that an update changes. `begin`: its place in the flat blocks; -1: outside of
  // them.
  struct StatePart {
    const char* what;
    Tensor now;
    int64_t begin = -1;
    Tensor spare = {};
  };

  std::vector<StatePart> state() const;
  void exchange_with_spares();
  std::string first_difference(const StatePart&);

  TrainStep& step_;
  Device& device_;
  ParameterStore& store_;
  Ctx ctx_;
  Tensor own_;                    // the Fingerprint of own gradients, with several processes
  std::vector<StatePart> state_;  // in the order in which differences are named
};

// Runs every `every`-th update twice. All processes do; an Error names the one that differs.
TrainHooks replay_every(int64_t every);
}  // namespace weft
