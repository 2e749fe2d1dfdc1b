// SPDX-License-Identifier: MIT
// What sampling keeps of the heads of a layer where content decides: members of labels, or sums of blocks.
#pragma once

#include "kernels/sampling/decode_blocks.h"
#include "src/ops/content.h"

namespace weft {
class ContentCache {
 public:
  ContentCache(Device&, const ContentLayer&, const AttentionShape&, int64_t batch, int64_t length,
               const int32_t* position);

  // For DecodeBlock, of the position at *position. `memory` gets what must live until the launch.
  void set(Ctx&, DecodeBlock&, const std::vector<Var>& centroids, DType, std::vector<Tensor>& memory) const;
  // The state behind a text from *position = 0 on, q | k | v (1, positions, columns) as they are projected,
  // of the sequences first .. first + texts - 1.
  void fill(Ctx&, const TensorView& packed, const std::vector<Var>& centroids, int64_t first,
            int64_t texts) const;
  int64_t bytes() const;

 private:
  DecodeContent content(Ctx&, std::size_t i, const Var& centroids, HeadsView q, int64_t first,
                        std::vector<Tensor>& memory) const;

  ContentLayer layer_;
  AttentionShape shape_;
  std::vector<Tensor> memory_;
  std::vector<DecodeContent> of_heads_;  // each of layer_.heads, of all sequences, without labels
  TensorView list_, count_;
};
}  // namespace weft
