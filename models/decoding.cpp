// SPDX-License-Identifier: MIT
// Sampling one position at a time: the caches of keys and values, and the step of the model.
#include "models/decoding.h"

#include "models/sparse_transformer.h"
#include "src/patterns/cache_rows.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Keys that a query of a causal pattern sees, at most.
int64_t longest_list(const AttentionPattern& pattern, int head, int64_t length) {
  int64_t longest = 0;
  if (pattern.most_keys(head)) return 0;  // DynamicCache has the list
  std::vector<KeyRun> runs;
  for (int64_t i = 0; i < length; ++i) {
    runs.clear();
    pattern.key_runs(head, i, runs);
    longest = std::max(longest, keys_in(runs, length));
  }
  return longest;
}
}  // namespace

CacheLayout::CacheLayout(std::shared_ptr<const AttentionPattern> pattern, int heads, int64_t length,
                         bool positions)
    : pattern_(std::move(pattern)),
      positions_(positions) {
  for (int head = 0; head < heads; ++head) group_of_head_.push_back(pattern_->group(head));
  head_of_group_.assign(pattern_->groups(heads), -1);
  for (int head = heads - 1; head >= 0; --head) head_of_group_.at(group_of(head)) = head;
  for (const int head : head_of_group_) {
    WEFT_CHECK(head >= 0, pattern_->name(), ": a group of heads has no head");
    of_group_.push_back(cache_rows(*pattern_, head, length));
    longest_ = std::max(longest_, longest_list(*pattern_, head, length));
  }
  for (int head = 0; head < heads; ++head) {
    first_row_.push_back(static_cast<int32_t>(rows_));
    rows_ += rows(head);
    WEFT_CHECK(rows_ <= kMaxPositions, pattern_->name(), ": a cache of ", length, " positions and ",
               heads, " heads has more than ", kMaxPositions, " rows; sample shorter texts");
  }
}

void CacheLayout::append_fixed(std::vector<int32_t>& words) const {
  words.insert(words.end(), group_of_head_.begin(), group_of_head_.end());
  words.insert(words.end(), first_row_.begin(), first_row_.end());
}

void CacheLayout::append_step(int64_t position, std::vector<int32_t>& words) const {
  std::vector<int32_t> positions, keys;
  words.push_back(0);
  for (std::size_t g = 0; g < of_group_.size(); ++g) {
    if (!pattern_->most_keys(head_of_group_[g]))
      pattern_->keys_of(head_of_group_[g], position, position + 1, positions);
    while (keys.size() < positions.size())
      keys.push_back(of_group_[g].row_of[positions[keys.size()]]);
    words.push_back(static_cast<int32_t>(keys.size()));
  }
  for (std::size_t h = 0; h < first_row_.size(); ++h) {
    const int32_t row = of_group_[group_of(static_cast<int>(h))].row_of[position];
    words.push_back(row < 0 ? -1 : first_row_[h] + row);
  }
  words.insert(words.end(), keys.begin(), keys.end());
  if (!positions_) return;
  words.resize(words.size() + static_cast<std::size_t>(listed_words()) - keys.size());
  words.insert(words.end(), positions.begin(), positions.end());
}

void CacheLayout::append_sources(int64_t count, std::vector<int32_t>& words) const {
  const std::size_t begin = words.size();
  words.resize(begin + static_cast<std::size_t>(rows_), -1);
  for (int64_t h = 0; h < heads(); ++h) {
    const std::vector<int32_t>& row_of = of_group_[group_of(static_cast<int>(h))].row_of;
    for (int64_t t = 0; t < count; ++t)  // a row's last position is there
      if (row_of[t] >= 0)
        words[begin + static_cast<std::size_t>(first_row_[h] + row_of[t])] =
            static_cast<int32_t>(t * heads() + h);
  }
}

// ---- all layers ----

LayerCaches::LayerCaches(Device& device,
                         const std::vector<std::shared_ptr<const AttentionPattern>>& of_layer,
                         const AttentionShape& shape, const std::vector<ResidualBlock>& blocks,
                         DType dtype, int64_t batch, int64_t length, bool positions)
    : device_(device),
      batch_(batch),
      length_(length),
      layout_of_layer_(of_layer.size()) {
  for (const LayerGroup& group : layer_groups(of_layer)) {
    layouts_.emplace_back(group.pattern, static_cast<int>(shape.heads), length, positions);
    for (const int64_t layer : group.members) layout_of_layer_[layer] = layouts_.size() - 1;
  }
  allocate(shape, dtype, positions);
  for (const ResidualBlock& block : blocks) {
    const DynamicHeads* heads = block.attention.dynamic.get();
    dynamic_.push_back(heads ? heads->make_cache(device, batch, length, position()) : nullptr);
  }
}

void LayerCaches::allocate(const AttentionShape& shape, DType dtype, bool positions) {
  int64_t step_words = 1;
  std::vector<int32_t> fixed;
  for (const CacheLayout& layout : layouts_) {
    layout.append_fixed(fixed);
    step_words += layout.step_words();
  }
  MemoryPool& pool = *device_.pool;
  fixed_ = Tensor(pool, {static_cast<int64_t>(fixed.size())}, DType::i32, "decode cache");
  step_ = Tensor(pool, {step_words}, DType::i32, "decode cache");
  device_.upload(fixed_, fixed.data());
  const int32_t *always = fixed_.view().as<int32_t>(), *step = position() + 1;
  for (const CacheLayout& layout : layouts_) {
    const int32_t* row = step + layout.groups() + 1;
    keys_.push_back({
        .keys = row + layout.heads(),
        .key_start = step,
        .key_positions = positions ? row + layout.heads() + layout.listed_words() : nullptr,
        .row = row,
        .group_of_head = always,
        .first_row = always + layout.heads(),
        .longest = layout.longest(),
    });
    always += layout.fixed_words();
    step += layout.step_words();
  }
  for (const std::size_t layout : layout_of_layer_) {
    const int64_t rows = layouts_[layout].rows();
    layers_.push_back({Tensor(pool, {batch_, rows, shape.qk_size}, dtype, "decode cache"),
                       Tensor(pool, {batch_, rows, shape.v_size}, dtype, "decode cache")});
  }
}

void LayerCaches::seek(int64_t position) {
  WEFT_CHECK(position >= 0 && position < length_, "decode: position ", position, " of a cache of ",
             length_);
  words_.assign(1, static_cast<int32_t>(position));
  std::size_t used = 0, next = 1;  // a layout's words begin where they begin at every position
  for (const CacheLayout& layout : layouts_) {
    words_.resize(next);
    layout.append_step(position, words_);
    used = words_.size();
    next += static_cast<std::size_t>(layout.step_words());
  }
  device_.upload_async(step_.view().data, words_.data(), used * sizeof(int32_t));
}

Tensor LayerCaches::sources(int64_t count) const {
  std::vector<int32_t> words;
  for (const CacheLayout& layout : layouts_) layout.append_sources(count, words);
  const Tensor sources(*device_.pool, {static_cast<int64_t>(words.size())}, DType::i32,
                       "decode cache");
  device_.upload(sources, words.data());
  return sources;
}

void LayerCaches::fill(Ctx& ctx, std::size_t layer, const Tensor& packed, const Tensor& sources,
                       int64_t first, int64_t texts) {
  const std::size_t layout = layout_of_layer_[layer];
  const int64_t heads = layouts_[layout].heads(), rows = layouts_[layout].rows();
  const int32_t* source = sources.view().as<int32_t>();
  for (std::size_t i = 0; i < layout; ++i) source += layouts_[i].rows();
  int64_t column = heads * layers_[layer].keys.view().cols();  // behind the queries
  for (const Tensor& cache : {layers_[layer].keys, layers_[layer].values}) {
    const int64_t size = cache.view().cols();
    ctx.launch(GatherRows{
        .y = cache.slice(first * rows * size, {texts, rows, size}),
        .x = heads_of(packed, column, heads, size),
        .source = source,
    });
    column += heads * size;
  }
}

std::size_t LayerCaches::bytes() const {
  int64_t sum = fixed_.view().bytes() + step_.view().bytes();
  for (const auto& heads : dynamic_) sum += heads ? heads->bytes() : 0;
  for (const KeyValueCache& layer : layers_)
    sum += layer.keys.view().bytes() + layer.values.view().bytes();
  return static_cast<std::size_t>(sum);
}

std::vector<CacheUse> LayerCaches::use() const {
  std::vector<CacheUse> uses;
  for (const CacheLayout& layout : layouts_) {
    CacheUse& use = uses.emplace_back();
    use.pattern = layout.pattern();
    use.dense_rows = length_;
    for (int head = 0; head < layout.heads(); ++head) use.rows.push_back(layout.rows(head));
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    CacheUse& use = uses[layout_of_layer_[i]];
    use.layers.push_back(static_cast<int64_t>(i));
    const TensorView &k = layers_[i].keys.view(), &v = layers_[i].values.view();
    use.bytes += static_cast<std::size_t>(k.bytes() + v.bytes());
    const int64_t dense =
        batch_ * layouts_[layout_of_layer_[i]].heads() * length_ * (k.cols() + v.cols());
    use.dense_bytes += static_cast<std::size_t>(dense * size_of(k.dtype));
  }
  return uses;
}

std::unique_ptr<DecodeCache> SparseTransformer::make_cache(Device& device, int64_t batch,
                                                           int64_t length, int64_t texts) {
  WEFT_CHECK(batch > 0 && length > 0 && length <= config_.context,
             "a cache needs batch > 0 and a length from 1 to ", "model.context = ", config_.context,
             ", got ", batch, " and ", length);
  for (const auto& [on, key] : {std::pair{config_.canon, "model.canon"},
                                {config_.unet, "model.unet"},
                                {config_.qk_learnt, "model.qk_learnt"}})
    WEFT_CHECK(!on, key,
               ": a model with it is for training and evaluation of whole texts; it does "
               "not decode");
  auto cache =
      std::make_unique<LayerCaches>(device, patterns_, attention_shape(config_), blocks_,
                                    store_.compute_dtype(), batch, length, separator_ >= 0);
  std::vector<DecodeBlock> blocks;
  if (texts < batch) return cache;
  for (std::size_t i = 0; i < blocks_.size() && separator_ < 0 && !cache->dynamic(i); ++i)
    blocks.push_back(blocks_[i].decoding(store_, cache->layer(i), cache->keys(i)));
  if (blocks.size() == blocks_.size())
    cache->prepared =
        prepare_blocks(device, std::move(blocks), attention_shape(config_), batch, texts);
  return cache;
}

Tensor SparseTransformer::decode_step(Ctx& ctx, DecodeCache& decode_cache, const Sequences& s) {
  auto& cache = dynamic_cast<LayerCaches&>(decode_cache);
  WEFT_CHECK(!ctx.tape && !ctx.training, "decode is for sampling: no tape, no dropout");
  check_sequences(s);
  WEFT_CHECK((s.tokens.shape() == Shape{cache.batch(), cache.length()}), "decode: tokens must be (",
             cache.batch(), ", ", cache.length(), ") of i32, like the cache, got ",
             shape_text(s.tokens));
  std::vector<DecodeBlock> blocks;
  const Tensor first_key =
      separator_ < 0 ? Tensor{} : document_starts(ctx, s.tokens, separator_, cache.position());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    blocks.push_back(blocks_[i].decoding(store_, cache.layer(i), cache.keys(i)));
    if (const DynamicCache* heads = cache.dynamic(i)) heads->set(ctx, store_, blocks.back());
  }
  Tensor x = embedding_.decode(ctx, store_, s, cache.position());
  if (!blocks.empty())
    x = decode_blocks(ctx, x, std::move(blocks), attention_shape(config_), blocks_[0].mlp.f,
                      of_qk(s), cache.position(), first_key, cache.prepared);
  const Tensor weight = store_.var(output_ ? output_->weight : embedding_.table).value;
  return decode_linear(ctx, store_, x, final_norm_.get(), weight)
      .reshaped({cache.batch(), config_.vocab});
}

// Every text has a pass of its own, so kernels need not be invariant to the batch.
void SparseTransformer::read_prompt(Ctx& ctx, DecodeCache& decode_cache, const Sequences& text,
                                    int64_t count, int64_t first, int64_t texts) {
  auto& cache = dynamic_cast<LayerCaches&>(decode_cache);
  WEFT_CHECK(!ctx.tape && !ctx.training, "read_prompt is for sampling: no tape, no dropout");
  check_sequences(text);
  WEFT_CHECK(text.tokens.shape()[0] == 1 && count >= 1 && count <= text.tokens.shape()[1] &&
                 count <= cache.length() && first >= 0 && texts >= 1 &&
                 first + texts <= cache.batch(),
             "read_prompt: ", count, " positions of ", shape_text(text.tokens),
             " for the sequences from ", first, " to ", first + texts - 1, " of a cache of (",
             cache.batch(), ", ", cache.length(), ")");
  Ctx pass = ctx;
  pass.batch_invariant = false;
  const Tensor sources = cache.sources(count);
  cache.seek(0);
  hidden(pass, text, [&](std::size_t layer, const Tensor& packed, const KeptMaps* maps) {
    if (maps) return cache.fill(pass, layer, packed, sources, first, texts);
    if (const DynamicCache* heads = cache.dynamic(layer))
      heads->fill(pass, store_, packed.slice(0, {1, count, packed.view().cols()}), first, texts);
  });
}
}  // namespace weft
