// SPDX-License-Identifier: MIT
// Sampling where content decides: what a position adds to the state, and the keys that it sees.
#include "src/content/heads.h"

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

namespace weft {
ContentCache::ContentCache(Device& device, const ContentHeads& heads, int64_t batch, int64_t length,
                           const int32_t* position)
    : heads_(heads) {
  const auto made = [&](const Shape& dims, DType dtype = DType::i32) {
    return memory_.emplace_back(*device.pool, dims, dtype, "decode cache").view();
  };
  int64_t longest = 1;
  for (const auto& [spec, range, tiles, passes] : heads.layer().heads) {
    Lists& c = of_heads_.emplace_back(range);
    c.list.heads = c.blocks.heads = range, c.list.position = c.blocks.position = position;
    if (has_labels(spec)) {
      const int64_t rounds = rounds_of(spec), labels = labels_of(spec, heads.layer().context),
                    window = std::min(spec.window, length);
      c.list.members = made({batch, rounds, range.count, labels, window});
      c.list.sizes = made({batch, rounds, range.count, labels});
      longest = std::max(longest, rounds * window);
    } else {
      const int64_t blocks = (length + spec.block - 1) / spec.block,
                    most = std::min(spec.blocks, blocks);
      c.blocks.sums = made({batch, range.count, blocks, heads.shape().qk_size}, DType::f32);
      c.blocks.chosen = made({batch, range.count, most});
      c.blocks.gates = made({batch, range.count, blocks}, DType::f32);
      c.blocks.block = spec.block;
      longest = std::max(longest, most * spec.block);
    }
  }
  list_ = made({batch, heads.shape().heads, longest}), count_ = made({batch, heads.shape().heads});
  const std::vector<int32_t> none(static_cast<std::size_t>(count_.size()), -1);
  device.upload(memory_.back(), none.data());
}

ContentCache::Lists ContentCache::lists(Ctx& ctx, std::size_t i, const Var& centroids, HeadsView q,
                                        int64_t first) const {
  Lists c = of_heads_[i];
  c.list.list = c.blocks.list = list_, c.list.count = c.blocks.count = count_;
  for (TensorView* x : {&c.list.list, &c.list.count, &c.list.members, &c.list.sizes, &c.blocks.list,
                        &c.blocks.count, &c.blocks.sums, &c.blocks.chosen, &c.blocks.gates}) {
    if (*x) x->data = static_cast<char*>(x->data) + first * (x->bytes() / x->shape[0]);
    x->shape[0] = q.batch;
  }
  q.heads = c.heads.count, q.size = heads_.shape().qk_size;
  if (c.list.members)
    c.labels =
        labels_of(ctx, heads_.layer(), heads_.layer().heads[i], q, centroids.value, c.memory);
  c.list.labels = c.labels.labels;
  return c;
}

void ContentCache::list_keys(Queue queue, const TensorView& packed, Lists c, bool rotated) const {
  const auto [all_q, all_k, v] =
      packed_heads(packed, heads_.shape().heads, heads_.shape().qk_size, heads_.shape().v_size);
  const HeadsView q = heads_in(all_q, c.heads), k = heads_in(all_k, c.heads);
  c.labels.q = c.blocks.q = q, c.blocks.k = k;
  const auto run_here = [&](const auto& kernel) {
    std::visit([&](auto& on) { run(on, kernel); }, queue);
  };
  if (!c.labels.labels) return rotated ? void() : run_here(c.blocks);
  if (rotated) return run_here(SharedKeys{.k = k, .q = q, .normed = heads_.layer().normed});
  run_here(c.labels);
  run_here(c.list);
}

void ContentCache::set(Ctx& ctx, const ParameterStore& store, DecodeBlock& block) const {
  const std::vector<Var> centroids = heads_.centroids(store);
  const HeadsView q{.dtype = store.compute_dtype(), .batch = count_.shape[0], .time = 1};
  std::vector<Lists> all;
  for (std::size_t i = 0; i < of_heads_.size(); ++i)
    all.push_back(lists(ctx, i, centroids[i], q, 0));
  block.own_list = list_, block.own_count = count_;
  block.longest = std::max(block.longest, list_.cols());
  block.list_keys = [this, all](const Queue& queue, const TensorView& packed, bool rotated) {
    for (const Lists& c : all) list_keys(queue, packed, c, rotated);
  };
}

void ContentCache::fill(Ctx& ctx, const ParameterStore& store, const TensorView& packed,
                        int64_t first, int64_t texts) const {
  const std::vector<Var> centroids = heads_.centroids(store);
  const HeadsView q{.dtype = packed.dtype, .batch = 1, .time = packed.shape[1]};
  for (std::size_t i = 0; i < of_heads_.size(); ++i)
    for (int64_t b = first; b < first + texts; ++b)
      list_keys(*ctx.queue, packed, lists(ctx, i, centroids[i], q, b), false);
}

int64_t ContentCache::bytes() const {
  int64_t sum = 0;
  for (const Tensor& t : memory_) sum += t.view().bytes();
  return sum;
}
}  // namespace weft
