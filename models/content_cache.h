// SPDX-License-Identifier: MIT
// What sampling keeps of the heads of a layer where content decides: members of labels, or sums of blocks.
#pragma once

#include "kernels/sampling/decode_blocks.h"
#include "src/ops/content.h"

namespace weft {

class ContentCache {
 public:
  ContentCache(Device&, const ContentLayer&, const AttentionShape&, std::int64_t batch, std::int64_t length);

  // For DecodeBlock, of the position at *position. `directions` gets what must live until the launch.
  void set(Ctx&, DecodeBlock&, const std::vector<Var>& centroids, bool normed, const Tensor& first_key,
           const std::int32_t* position, std::vector<Tensor>& directions) const;
  // The state behind the first `count` positions of a text, of which `states` tell.
  void fill(Ctx&, const std::vector<ContentState>& states, std::int64_t count, std::int64_t first,
            std::int64_t texts) const;
  std::int64_t bytes() const;

 private:
  struct State {
    Tensor members, sizes, labels;  // of LabelList
    Tensor sums, chosen, gates;     // of BlockList
  };
  ContentLayer layer_;
  std::int64_t size_;
  std::vector<State> states_;  // of each of layer_.heads
  Tensor list_, count_;
};

}  // namespace weft
