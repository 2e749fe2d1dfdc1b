// SPDX-License-Identifier: MIT
// Token and n-dimensional position embeddings (Child et al. 2019, arXiv 1904.10509, section 5.3),
// shifted by one: row t embeds token t - 1 and predicts token t. The first row is a learned vector.
//   y[b, 0] = start                                  without conditions
//   y[b, 0] = sum_k start[conditions[b, k]]          with conditions, which say how it is augmented
//   y[b, t] = table[tokens[b, t - 1]] + sum_a position_a[(place / divisor_a) % rows_a]
//             + previous[tokens[b, t - 2]]           with such a table, for t >= 2
// The place of token i is positions[b, i] where given (a permuted image), else i + offsets[b] or i.
#pragma once

#include "kernels/diagnostics/launch_profile.h"
#include "kernels/queue.h"

#include <vector>

namespace weft {
inline constexpr int kMaxPositionAxes = 3;

// One axis of positions. Text has (t / l, t mod l) with the stride l of the pattern; images have
// row, column and channel of the sub-pixel.
struct PositionAxis {
  TensorView table;     // (rows, C)  T, contiguous
  int64_t divisor = 1;  // index = (position / divisor) % rows
};

struct EmbeddingForward {
  static constexpr const char* kName = "embedding_forward";
  TensorView y;         // (B, count, C)  T: rows first .. first + count - 1 of the sequence
  TensorView tokens;    // (B, T)   i32, each in [0, V); not checked here
  int64_t first = 0;    // first + count <= T + 1
  TensorView table;     // (V, C)   T
  TensorView start;     // (C), with conditions (R, C)  T
  TensorView previous;  // (V, C)  T, or absent
  PositionAxis axis[kMaxPositionAxes];
  int axes = 0;
  TensorView offsets;     // (B)     i32 >= 0, or absent: o_b
  TensorView positions;   // (B, T)  i32 >= 0, or absent; not together with offsets
  TensorView conditions;  // (B, K)  i32, each in [0, R), or absent
  // Sampling: replaces `first`, in the queue's memory; *first_at + count <= T + 1.
  const int32_t* first_at = nullptr;

  std::vector<TensorView> outputs() const { return {y}; }

  LaunchCost cost() const {
    return {.bytes = 2 * bytes_of({y}) + bytes_of({tokens}), .flops = 0, .shape = ""};
  }
};

WEFT_KERNEL(EmbeddingForward);

// Sums over tokens in a fixed order. dy covers rows 0 .. T - 1, so the last token gets no gradient.
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  GradView dtable;                   // (V, C)     wide(T)
  GradView dstart;                   // as start   wide(T)
  GradView dprevious;                // (V, C)     wide(T)
  GradView daxis[kMaxPositionAxes];  // (rows, C)  wide(T)
  int64_t divisor[kMaxPositionAxes] = {1, 1, 1};
  int axes = 0;
  TensorView dy;          // (B, T, C)  T
  TensorView tokens;      // (B, T)     i32
  TensorView offsets;     // (B)        i32, or absent
  TensorView positions;   // (B, T)     i32, or absent
  TensorView conditions;  // (B, K)     i32, or absent

  std::vector<TensorView> outputs() const {
    return {dtable.view, dstart.view, dprevious.view, daxis[0].view, daxis[1].view, daxis[2].view};
  }

  std::vector<TensorView> inputs() const { return {dy, tokens}; }
};

WEFT_KERNEL(EmbeddingBackward);
}  // namespace weft
