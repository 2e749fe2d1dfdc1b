// SPDX-License-Identifier: MIT
// What sampling keeps of the heads of a layer where content decides: members of labels, or sums of blocks.
#pragma once

#include "kernels/sampling/decode_blocks.h"
#include "src/ops/content.h"

namespace weft {
class ContentCache {
 public:
  ContentCache(Device&, const ContentLayer&, const AttentionShape&, int64_t batch, int64_t length);

  // For DecodeBlock, of the position at *position. `memory` gets what must live until the launch.
  void set(Ctx&, DecodeBlock&, const std::vector<Var>& centroids, bool normed, DType dtype,
           const int32_t* position, std::vector<Tensor>& memory) const;
  // The state behind a text from *position = 0 on, q | k | v (1, positions, columns) as they are projected,
  // of the sequences first .. first + texts - 1.
  void fill(Ctx&, const TensorView& packed, const std::vector<Var>& centroids, const int32_t* position,
            int64_t first, int64_t texts) const;
  int64_t bytes() const;

 private:
  struct State {
    Tensor members, sizes;       // of LabelList
    Tensor sums, chosen, gates;  // of BlockList
  };
  DecodeContent content(Ctx&, std::size_t i, const HeadsView& q, const Var& centroids, int64_t first,
                        const int32_t* position, std::vector<Tensor>& memory) const;

  ContentLayer layer_;
  AttentionShape shape_;
  std::vector<State> states_;  // of each of layer_.heads
  Tensor list_, count_;
};
}  // namespace weft
