// SPDX-License-Identifier: MIT
// The model as a list of layers, forward and decoding.
#include "models/sparse_transformer.h"

#include <cmath>

#include "models/shape.h"

namespace weft {

namespace {

// Standard deviation of a weight that sums over `fan_in` inputs.
double weight_std(const InitConfig& init, std::int64_t fan_in) {
  const auto n = static_cast<double>(fan_in);
  return init.weight_rule == "std" ? init.weight_gain / std::sqrt(n) : std::sqrt(init.weight_gain / n);
}

ResidualBlock make_block(const ModelConfig& m, ParameterStore& store, const std::string& name) {
  const AttentionShape shape = attention_shape(m);
  const std::int64_t hidden = mlp_width(m);
  const double std = weight_std(m.init, m.width);
  // The last matrix of each branch: 2 * layers branches add up in the residual stream.
  const double share = 1 / std::sqrt(2.0 * static_cast<double>(m.layers));
  return {LayerNorm(store, name + ".attention_norm", m.width, m.norm_eps),
          Attention(store, name + ".attention", m.width, shape, std,
                    share * weight_std(m.init, shape.heads * shape.v_size)),
          LayerNorm(store, name + ".mlp_norm", m.width, m.norm_eps),
          Mlp(store, name + ".mlp", m.width, hidden, std, share * weight_std(m.init, hidden))};
}

}  // namespace

SparseTransformer::SparseTransformer(const Config& config, ParameterStore& store, Device& device)
    : config_(config.model),
      recompute_(config.train.recompute == "block"),
      store_(store),
      device_(device),
      embedding_(store, config_.vocab, config_.width, config_.position_axes, config_.init.token_std,
                 config_.init.position_std),
      patterns_(layer_patterns(config_)),
      maps_(device, static_cast<int>(config_.heads), attention_shape(config_).head_size()) {
  for (std::int64_t i = 0; i < config_.layers; ++i)
    blocks_.push_back(make_block(config_, store, str("blocks.", i)));
  if (config_.final_norm) {
    final_norm_ = std::make_unique<LayerNorm>(store, "final_norm", config_.width, config_.norm_eps);
  }
  if (!config_.tied_output) {
    output_ = std::make_unique<Linear>(store, "output", config_.width, config_.vocab, 0.0, false);
  }
}

void SparseTransformer::check_tokens(const Tensor& tokens) const {
  const TensorView& t = tokens.view();
  WEFT_CHECK(t.rank == 2 && t.dtype == DType::i32 && t.shape[0] > 0 && t.shape[1] > 0 &&
                 t.shape[1] <= config_.context,
             "tokens must be (B, T) of i32 with T from 1 to model.context = ", config_.context, ", got ",
             shape_text(t), " of ", name_of(t.dtype));
}

Var SparseTransformer::attend_and_mix(Ctx& ctx, const ResidualBlock& block, const Var& x,
                                      const Var& attended) const {
  const Var h = residual_dropout(ctx, x, attended, config_.dropout);
  const Var m = block.mlp.forward(ctx, store_, block.mlp_norm.forward(ctx, store_, h));
  return residual_dropout(ctx, h, m, config_.dropout);
}

Var SparseTransformer::run_block(Ctx& ctx, std::size_t layer, const Var& x, const AttentionMaps& maps) const {
  const ResidualBlock& block = blocks_[layer];
  const Var a = block.attention.forward(ctx, store_, block.attention_norm.forward(ctx, store_, x), maps);
  return attend_and_mix(ctx, block, x, a);
}

Var SparseTransformer::hidden(Ctx& ctx, const Tensor& tokens, const Tensor& offsets) {
  check_tokens(tokens);
  Var x = dropout(ctx, embedding_.forward(ctx, store_, tokens, offsets), config_.embedding_dropout);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const AttentionMaps maps = maps_.get(*patterns_[i], tokens.shape()[1]).maps();
    const Block block = [this, i, maps](Ctx& c, const Var& in) { return run_block(c, i, in, maps); };
    x = recompute_ ? recompute(ctx, block, x) : block(ctx, x);
  }
  return x;
}

Var SparseTransformer::output(Ctx& ctx, const Var& x) const {
  const Var h = final_norm_ ? final_norm_->forward(ctx, store_, x) : x;
  return output_ ? output_->forward(ctx, store_, h) : linear(ctx, h, store_.var(embedding_.table), Var{});
}

Var SparseTransformer::token_losses(Ctx& ctx, const Tensor& tokens, const Tensor& offsets) {
  return cross_entropy(ctx, output(ctx, hidden(ctx, tokens, offsets)), tokens);
}

Tensor SparseTransformer::logits(Ctx& ctx, const Tensor& tokens) {
  return output(ctx, hidden(ctx, tokens, {})).value;
}

// ---- decoding
// --------------------------------------------------------------------------------------------------------

struct SparseTransformer::Cache : DecodeCache {
  std::vector<KeyValueCache> layers;
  // Distinct patterns of the model, which of them each layer has, and the head that stands for each of their
  // groups.
  std::vector<const AttentionPattern*> patterns;
  std::vector<std::size_t> pattern_of_layer;
  std::vector<std::vector<int>> group_heads;
  Tensor groups;  // (patterns, H) i32: the group of each head
  Tensor keys;    // i32: for each pattern, key_start then keys; written anew for each position
  std::int64_t batch = 0, length = 0;

  std::size_t bytes() const override {
    std::int64_t sum = keys.view().bytes() + groups.view().bytes();
    for (const KeyValueCache& layer : layers) sum += layer.keys.view().bytes() + layer.values.view().bytes();
    return static_cast<std::size_t>(sum);
  }
};

std::unique_ptr<DecodeCache> SparseTransformer::make_cache(Device& device, std::int64_t batch,
                                                           std::int64_t length) {
  WEFT_CHECK(batch > 0 && length > 0 && length <= config_.context,
             "a cache needs batch > 0 and a length from 1 to ", "model.context = ", config_.context, ", got ",
             batch, " and ", length);
  auto cache = std::make_unique<Cache>();
  cache->batch = batch;
  cache->length = length;
  const AttentionShape shape = attention_shape(config_);
  const DType dtype = store_.compute_dtype();
  std::vector<std::int32_t> group_of_head;
  std::int64_t key_words = 0;
  for (const auto& pattern : patterns_) {
    cache->layers.push_back(
        {Tensor(*device.pool, {length, batch, shape.heads * shape.qk_size}, dtype, "decode cache"),
         Tensor(*device.pool, {length, batch, shape.heads * shape.v_size}, dtype, "decode cache")});
    std::size_t known = 0;
    while (known < cache->patterns.size() && cache->patterns[known] != pattern.get()) ++known;
    cache->pattern_of_layer.push_back(known);
    if (known < cache->patterns.size()) continue;
    const int heads = static_cast<int>(shape.heads), groups = pattern->groups(heads);
    std::vector<int> head_of_group(static_cast<std::size_t>(groups));
    for (int head = heads - 1; head >= 0; --head)
      head_of_group[static_cast<std::size_t>(pattern->group(head))] = head;
    for (int head = 0; head < heads; ++head) group_of_head.push_back(pattern->group(head));
    cache->patterns.push_back(pattern.get());
    cache->group_heads.push_back(std::move(head_of_group));
    key_words += groups + 1 + groups * length;
  }
  const auto distinct = static_cast<std::int64_t>(cache->patterns.size());
  cache->groups = Tensor(*device.pool, {distinct, shape.heads}, DType::i32, "decode cache");
  cache->keys = Tensor(*device.pool, {key_words}, DType::i32, "decode cache");
  device.upload(cache->groups, group_of_head.data());
  return cache;
}

std::vector<DecodeKeys> SparseTransformer::upload_keys(Cache& cache, std::int64_t position) const {
  std::vector<std::int32_t> words, keys;
  std::vector<DecodeKeys> of_pattern;
  const std::int32_t* device_words = cache.keys.view().as<std::int32_t>();
  const std::int32_t* device_groups = cache.groups.view().as<std::int32_t>();
  for (std::size_t p = 0; p < cache.patterns.size(); ++p) {
    const std::size_t start = words.size(), groups = cache.group_heads[p].size();
    keys.clear();
    words.push_back(0);
    for (const int head : cache.group_heads[p]) {
      cache.patterns[p]->keys_of(head, position, position + 1, keys);
      words.push_back(static_cast<std::int32_t>(keys.size()));
    }
    words.insert(words.end(), keys.begin(), keys.end());
    of_pattern.push_back({device_words + start + groups + 1, device_words + start,
                          device_groups + static_cast<std::int64_t>(p) * config_.heads});
  }
  device_.upload_async(cache.keys.view().data, words.data(), words.size() * sizeof(std::int32_t));
  std::vector<DecodeKeys> of_layer;
  for (const std::size_t p : cache.pattern_of_layer) of_layer.push_back(of_pattern[p]);
  return of_layer;
}

Tensor SparseTransformer::decode(Ctx& ctx, DecodeCache& decode_cache, const Tensor& tokens,
                                 std::int64_t position) {
  auto& cache = dynamic_cast<Cache&>(decode_cache);
  WEFT_CHECK(!ctx.tape && !ctx.training, "decode is for sampling: no tape, no dropout");
  WEFT_CHECK((tokens.shape() == Shape{cache.batch, cache.length}) && tokens.dtype() == DType::i32,
             "decode: tokens must be (", cache.batch, ", ", cache.length, ") of i32, like the cache, got ",
             shape_text(tokens));
  WEFT_CHECK(position >= 0 && position < cache.length, "decode: position ", position, " of a cache of ",
             cache.length);
  const std::vector<DecodeKeys> keys = upload_keys(cache, position);
  Var x = embedding_.forward(ctx, store_, tokens, {}, position, 1);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Var normed = blocks_[i].attention_norm.forward(ctx, store_, x);
    const Var a = blocks_[i].attention.decode(ctx, store_, normed, cache.layers[i], keys[i], position);
    x = attend_and_mix(ctx, blocks_[i], x, a);
  }
  return output(ctx, x).value.reshaped({cache.batch, config_.vocab});
}

std::unique_ptr<Model> make_sparse_transformer(const Config& config, ParameterStore& store, Device& device) {
  return std::make_unique<SparseTransformer>(config, store, device);
}

}  // namespace weft
