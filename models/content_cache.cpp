// SPDX-License-Identifier: MIT
#include "models/content_cache.h"

#include <algorithm>

namespace weft {

ContentCache::ContentCache(Device& device, const ContentLayer& layer, const AttentionShape& shape,
                           std::int64_t batch, std::int64_t length)
    : layer_(layer), size_(shape.qk_size) {
  const auto tensor = [&](const Shape& dims, DType dtype) {
    return Tensor(*device.pool, dims, dtype, "decode cache");
  };
  std::int64_t longest = 1;
  for (const ContentHeads& content : layer_.heads) {
    State& state = states_.emplace_back();
    const std::int64_t heads = content.heads.count;
    if (has_labels(content.spec)) {
      const std::int64_t rounds = rounds_of(content.spec), labels = labels_of(content.spec, layer_.context),
                         window = std::min(content.spec.window, length);
      state.members = tensor({rounds, batch, heads, labels, window}, DType::i32);
      state.sizes = tensor({rounds, batch, heads, labels}, DType::i32);
      state.labels = tensor({rounds, batch, heads}, DType::i32);
      longest = std::max(longest, rounds * window);
    } else {
      const std::int64_t block = content.spec.block, blocks = (length + block - 1) / block,
                         most = std::min(content.spec.blocks, blocks);
      state.sums = tensor({batch, heads, size_, blocks}, DType::f32);
      state.chosen = tensor({batch, heads, most}, DType::i32);
      state.gates = tensor({batch, heads, blocks}, DType::f32);
      longest = std::max(longest, most * block);
    }
  }
  list_ = tensor({batch, shape.heads, longest}, DType::i32);
  count_ = tensor({batch, shape.heads}, DType::i32);
  device.upload(count_, std::vector<std::int32_t>(static_cast<std::size_t>(count_.size()), -1).data());
}

void ContentCache::set(Ctx& ctx, DecodeBlock& block, const std::vector<Var>& centroids, bool normed,
                       const Tensor& first_key, const std::int32_t* position,
                       std::vector<Tensor>& directions) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const ContentHeads& content = layer_.heads[i];
    const State& s = states_[i];
    DecodeContent& out = block.content.emplace_back();
    out.has_labels = has_labels(content.spec);
    out.normed = normed;
    if (out.has_labels) {
      directions.push_back(label_directions(ctx, layer_, content, centroids[i].value, size_));
      out.labels.labels = s.labels;
      out.labels.directions = directions.back();
      out.labels.rounds = content.spec.kind == "lsh" ? static_cast<std::int32_t>(rounds_of(content.spec)) : 0;
      out.list = {list_, count_, s.members, s.sizes, s.labels, first_key, position, content.heads};
    } else {
      out.blocks = {list_, count_, s.sums,   s.chosen,      s.gates,
                    {},    {},     position, content.heads, content.spec.block};
    }
  }
  block.own_list = list_, block.own_count = count_;
  block.longest = std::max(block.longest, list_.view().cols());
}

void ContentCache::fill(Ctx& ctx, const std::vector<ContentState>& states, std::int64_t count,
                        std::int64_t first, std::int64_t texts) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& s = states_[i];
    const ContentState& text = states.at(i);
    if (has_labels(layer_.heads[i].spec)) {
      const Shape of = text.labels.shape();
      ctx.launch(
          LabelFill{s.members, s.sizes, text.labels.reshaped({of[0], of[2], of[3]}), first, texts, count});
      continue;
    }
    const Shape sums = text.sums.shape(), chosen = text.chosen.shape();
    ctx.launch(BlockFill{s.sums, s.chosen, text.sums.reshaped({sums[1], sums[2], sums[3]}),
                         text.chosen.reshaped({chosen[1], chosen[2], chosen[3]}), first, texts, count,
                         layer_.heads[i].spec.block});
  }
}

std::int64_t ContentCache::bytes() const {
  std::int64_t sum = list_.view().bytes() + count_.view().bytes();
  for (const State& s : states_)
    for (const Tensor* t : {&s.members, &s.sizes, &s.labels, &s.sums, &s.chosen, &s.gates})
      if (*t) sum += t->view().bytes();
  return sum;
}

}  // namespace weft
