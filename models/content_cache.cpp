// SPDX-License-Identifier: MIT
#include "models/content_cache.h"
#include "kernels/sampling/decode_blocks_steps.h"

namespace weft {
ContentCache::ContentCache(Device& device, const ContentLayer& layer, const AttentionShape& shape,
                           int64_t batch, int64_t length)
    : layer_(layer), shape_(shape) {
  const auto tensor = [&](const Shape& dims, DType dtype) {
    return Tensor(*device.pool, dims, dtype, "decode cache");
  };
  int64_t longest = 1;
  for (const auto& [spec, range] : layer_.heads) {
    State& state = states_.emplace_back();
    if (has_labels(spec)) {
      const int64_t rounds = rounds_of(spec), labels = labels_of(spec, layer_.context),
                    window = std::min(spec.window, length);
      state.members = tensor({batch, rounds, range.count, labels, window}, DType::i32);
      state.sizes = tensor({batch, rounds, range.count, labels}, DType::i32);
      longest = std::max(longest, rounds * window);
    } else {
      const int64_t blocks = (length + spec.block - 1) / spec.block, most = std::min(spec.blocks, blocks);
      state.sums = tensor({batch, range.count, blocks, shape.qk_size}, DType::f32);
      state.chosen = tensor({batch, range.count, most}, DType::i32);
      state.gates = tensor({batch, range.count, blocks}, DType::f32);
      longest = std::max(longest, most * spec.block);
    }
  }
  list_ = tensor({batch, shape.heads, longest}, DType::i32);
  count_ = tensor({batch, shape.heads}, DType::i32);
  device.upload(count_, std::vector<int32_t>(static_cast<std::size_t>(count_.size()), -1).data());
}

// q: of the sequences from `first` on, its data does not matter.
DecodeContent ContentCache::content(Ctx& ctx, std::size_t i, const HeadsView& q, const Var& centroids,
                                    int64_t first, const int32_t* position,
                                    std::vector<Tensor>& memory) const {
  const auto& [spec, range] = layer_.heads[i];
  const State& s = states_[i];
  const auto of = [&](const Tensor& t) {
    Shape shape = t.shape();
    const int64_t row = t.size() / shape[0];
    shape[0] = q.batch;
    return t.slice(first * row, shape);
  };
  DecodeContent out{.heads = range};
  if (has_labels(spec)) {
    out.labels = labels_of(ctx, layer_, layer_.heads[i], q, centroids.value, memory);
    out.list = {of(list_), of(count_), of(s.members), of(s.sizes), out.labels.labels, position, range};
  } else {
    out.blocks = {of(list_), of(count_), of(s.sums), of(s.chosen), of(s.gates),
                  {},        {},         position,   range,        spec.block};
  }
  return out;
}

void ContentCache::set(Ctx& ctx, DecodeBlock& block, const std::vector<Var>& centroids, bool normed,
                       DType dtype, const int32_t* position, std::vector<Tensor>& memory) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const HeadsView q{.dtype = dtype,
                      .batch = count_.shape()[0],
                      .time = 1,
                      .heads = layer_.heads[i].heads.count,
                      .size = shape_.qk_size};
    block.content.push_back(content(ctx, i, q, centroids[i], 0, position, memory));
    block.content.back().normed = normed;
  }
  block.own_list = list_, block.own_count = count_;
  block.longest = std::max(block.longest, list_.view().cols());
}

void ContentCache::fill(Ctx& ctx, const TensorView& packed, const std::vector<Var>& centroids,
                        const int32_t* position, int64_t first, int64_t texts) const {
  for (std::size_t i = 0; i < states_.size(); ++i)
    for (int64_t b = first; b < first + texts; ++b) {
      std::vector<Tensor> memory;
      const HeadsView q = heads_in(heads_of(packed, 0, shape_.heads, shape_.qk_size), layer_.heads[i].heads);
      const DecodeContent of_text = content(ctx, i, q, centroids[i], b, position, memory);
      std::visit([&](auto& queue) { list_keys(queue, packed, shape_.heads, shape_.qk_size, of_text, false); },
                 *ctx.queue);
    }
}

int64_t ContentCache::bytes() const {
  int64_t sum = list_.view().bytes() + count_.view().bytes();
  for (const State& s : states_)
    for (const Tensor* t : {&s.members, &s.sizes, &s.sums, &s.chosen, &s.gates})
      if (*t) sum += t->view().bytes();
  return sum;
}
}  // namespace weft
