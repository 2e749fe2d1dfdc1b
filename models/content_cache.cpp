// SPDX-License-Identifier: MIT
#include "models/content_cache.h"
#include "kernels/sampling/decode_blocks_steps.h"

namespace weft {
ContentCache::ContentCache(Device& device, const ContentLayer& layer, const AttentionShape& shape,
                           int64_t batch, int64_t length, const int32_t* position)
    : layer_(layer), shape_(shape) {
  const auto made = [&](const Shape& dims, DType dtype = DType::i32) {
    return memory_.emplace_back(*device.pool, dims, dtype, "decode cache").view();
  };
  int64_t longest = 1;
  for (const auto& [spec, range] : layer_.heads) {
    DecodeContent& c = of_heads_.emplace_back(range, layer.normed);
    c.list.heads = c.blocks.heads = range, c.list.position = c.blocks.position = position;
    if (has_labels(spec)) {
      const int64_t rounds = rounds_of(spec), labels = labels_of(spec, layer_.context),
                    window = std::min(spec.window, length);
      c.list.members = made({batch, rounds, range.count, labels, window});
      c.list.sizes = made({batch, rounds, range.count, labels});
      longest = std::max(longest, rounds * window);
    } else {
      const int64_t blocks = (length + spec.block - 1) / spec.block, most = std::min(spec.blocks, blocks);
      c.blocks.sums = made({batch, range.count, blocks, shape.qk_size}, DType::f32);
      c.blocks.chosen = made({batch, range.count, most});
      c.blocks.gates = made({batch, range.count, blocks}, DType::f32);
      c.blocks.block = spec.block;
      longest = std::max(longest, most * spec.block);
    }
  }
  if (of_heads_.empty()) return;
  list_ = made({batch, shape.heads, longest}), count_ = made({batch, shape.heads});
  const std::vector<int32_t> none(static_cast<std::size_t>(count_.size()), -1);
  device.upload(memory_.back(), none.data());
}

// Of q.batch sequences from `first` on; list_keys() gives q its data.
DecodeContent ContentCache::content(Ctx& ctx, std::size_t i, const Var& centroids, HeadsView q, int64_t first,
                                    std::vector<Tensor>& memory) const {
  DecodeContent c = of_heads_[i];
  c.list.list = c.blocks.list = list_, c.list.count = c.blocks.count = count_;
  for (TensorView* x : {&c.list.list, &c.list.count, &c.list.members, &c.list.sizes, &c.blocks.list,
                        &c.blocks.count, &c.blocks.sums, &c.blocks.chosen, &c.blocks.gates}) {
    if (*x) x->data = static_cast<char*>(x->data) + first * (x->bytes() / x->shape[0]);
    x->shape[0] = q.batch;
  }
  q.heads = c.heads.count, q.size = shape_.qk_size;
  if (c.list.members) c.labels = labels_of(ctx, layer_, layer_.heads[i], q, centroids.value, memory);
  c.list.labels = c.labels.labels;
  return c;
}

void ContentCache::set(Ctx& ctx, DecodeBlock& block, const std::vector<Var>& centroids, DType dtype,
                       std::vector<Tensor>& memory) const {
  for (std::size_t i = 0; i < of_heads_.size(); ++i) {
    const HeadsView q{.dtype = dtype, .batch = count_.shape[0], .time = 1};
    block.content.push_back(content(ctx, i, centroids[i], q, 0, memory));
    block.own_list = list_, block.own_count = count_;
    block.longest = std::max(block.longest, list_.cols());
  }
}

void ContentCache::fill(Ctx& ctx, const TensorView& packed, const std::vector<Var>& centroids, int64_t first,
                        int64_t texts) const {
  for (std::size_t i = 0; i < of_heads_.size(); ++i)
    for (int64_t b = first; b < first + texts; ++b) {
      std::vector<Tensor> memory;
      const HeadsView q{.dtype = packed.dtype, .batch = 1, .time = packed.shape[1]};
      const DecodeContent of_text = content(ctx, i, centroids[i], q, b, memory);
      std::visit([&](auto& queue) { list_keys(queue, packed, shape_.heads, shape_.qk_size, of_text, false); },
                 *ctx.queue);
    }
}

int64_t ContentCache::bytes() const {
  int64_t sum = 0;
  for (const Tensor& t : memory_) sum += t.view().bytes();
  return sum;
}
}  // namespace weft
