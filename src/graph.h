// SPDX-License-Identifier: MIT
// GraphedStep: ordinary code, run eagerly the first times and replayed as a CUDA graph afterwards.
#pragma once

#include "src/device.h"

namespace weft {

class GraphedStep {
 public:
  // `enabled` false (or a CPU device): run() just calls its function.
  GraphedStep(Device&, bool enabled);
  ~GraphedStep();
  GraphedStep(GraphedStep&&) noexcept;

  // Calls 1 and 2 run `work` (warming pools and libraries), call 3 captures it and launches, later calls
  // replay. `work` must do the same launches every time, and no host synchronisation. Tensors it makes come
  // from the graph side of the pool (src/tensor.h); what it reads and writes besides must stay where it is.
  void run(const std::function<void()>& work);
  bool replaying() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
