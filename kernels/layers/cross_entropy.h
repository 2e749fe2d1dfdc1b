// SPDX-License-Identifier: MIT
// Softmax cross-entropy of each row, in nats: loss = logsumexp(logits) - logits[target].
#pragma once

#include "kernels/queue.h"

#include <vector>

namespace weft {
struct CrossEntropyForward {
  static constexpr const char* kName = "cross_entropy_forward";
  TensorView loss;     // (N)     wide(T)
  TensorView lse;      // (N)     wide(T): kept for the backward pass
  TensorView logits;   // (N, V)  T
  TensorView targets;  // (N)     i32 in [0, V); a negative target is ignored: loss 0, gradient 0

  std::vector<TensorView> outputs() const { return {loss, lse}; }

  std::vector<TensorView> inputs() const { return {logits, targets}; }
};

WEFT_KERNEL(CrossEntropyForward);

// dlogits = dloss * (softmax(logits) - onehot(target))
struct CrossEntropyBackward {
  static constexpr const char* kName = "cross_entropy_backward";
  GradView dlogits;       // (N, V)  T
  TensorView dloss, lse;  // (N)     wide(T)
  TensorView logits;      // (N, V)  T
  TensorView targets;     // (N)     i32

  std::vector<TensorView> outputs() const { return {dlogits.view}; }

  std::vector<TensorView> inputs() const { return {dloss, lse, logits, targets}; }
};

WEFT_KERNEL(CrossEntropyBackward);
}  // namespace weft
