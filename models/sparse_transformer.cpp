// SPDX-License-Identifier: MIT
// The model as a list of layers, forward and decoding.
#include "models/sparse_transformer.h"

#include <cmath>

#include "models/cache_layout.h"
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
      conditions_(conditions(config)),
      recompute_blocks_(config.train.recompute == "block"),
      recompute_attention_(config.train.recompute == "attention"),
      store_(store),
      device_(device),
      embedding_(store, config_.vocab, config_.width, config_.position_axes, condition_rows(conditions_),
                 config_.init.token_std, config_.init.position_std),
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

void SparseTransformer::check_sequences(const Sequences& s) const {
  const TensorView& t = s.tokens.view();
  WEFT_CHECK(t.rank == 2 && t.dtype == DType::i32 && t.shape[0] > 0 && t.shape[1] > 0 &&
                 t.shape[1] <= config_.context,
             "tokens must be (B, T) of i32 with T from 1 to model.context = ", config_.context, ", got ",
             shape_text(t), " of ", name_of(t.dtype));
  const auto kinds = static_cast<std::int64_t>(conditions_.size());
  WEFT_CHECK((s.conditions ? s.conditions.view().cols() : 0) == kinds, "this model is told ", kinds,
             " things about a sequence (conditions (B, ", kinds, ")), got ", shape_text(s.conditions));
}

Var SparseTransformer::attend_and_mix(Ctx& ctx, const ResidualBlock& block, const Var& x,
                                      const Var& attended) const {
  const Var h = residual_dropout(ctx, x, attended, config_.dropout);
  const Var m = block.mlp.forward(ctx, store_, block.mlp_norm.forward(ctx, store_, h));
  return residual_dropout(ctx, h, m, config_.dropout);
}

Var SparseTransformer::run_block(Ctx& ctx, std::size_t layer, const Var& x, const AttentionMaps& maps) const {
  const ResidualBlock& block = blocks_[layer];
  const Var a = block.attention.forward(ctx, store_, block.attention_norm.forward(ctx, store_, x), maps,
                                        recompute_attention_);
  return attend_and_mix(ctx, block, x, a);
}

Var SparseTransformer::hidden(Ctx& ctx, const Sequences& s) {
  check_sequences(s);
  Var x = dropout(ctx, embedding_.forward(ctx, store_, s), config_.embedding_dropout);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    WEFT_CHECK(patterns_[i]->causal(), "layer ", i, ": ", patterns_[i]->name(),
               " sees what the model is to predict; a model needs causal patterns");
    const AttentionMaps maps = maps_.get(*patterns_[i], s.tokens.shape()[1]).maps();
    const Block block = [this, i, maps](Ctx& c, const Var& in) { return run_block(c, i, in, maps); };
    x = recompute_blocks_ ? recompute(ctx, block, x) : block(ctx, x);
  }
  return x;
}

Var SparseTransformer::output(Ctx& ctx, const Var& x) const {
  const Var h = final_norm_ ? final_norm_->forward(ctx, store_, x) : x;
  return output_ ? output_->forward(ctx, store_, h) : linear(ctx, h, store_.var(embedding_.table), Var{});
}

Var SparseTransformer::token_losses(Ctx& ctx, const Sequences& s) {
  return cross_entropy(ctx, output(ctx, hidden(ctx, s)), s.tokens);
}

Tensor SparseTransformer::logits(Ctx& ctx, const Sequences& s) { return output(ctx, hidden(ctx, s)).value; }

// ---- decoding
// --------------------------------------------------------------------------------------------------------

struct SparseTransformer::Cache : DecodeCache {
  std::vector<KeyValueCache> layers;
  std::vector<CacheLayout> layouts;  // one for each distinct pattern
  std::vector<std::size_t> layout_of_layer;
  Tensor fixed;  // i32: what each layout needs at any position
  Tensor step;   // i32: what each layout needs at the position at hand; written anew for each
  std::int64_t batch = 0, length = 0;

  std::size_t bytes() const override {
    std::int64_t sum = fixed.view().bytes() + step.view().bytes();
    for (const KeyValueCache& layer : layers) sum += layer.keys.view().bytes() + layer.values.view().bytes();
    return static_cast<std::size_t>(sum);
  }

  std::vector<CacheUse> use() const override {
    std::vector<CacheUse> uses;
    for (const CacheLayout& layout : layouts) {
      CacheUse& use = uses.emplace_back();
      use.pattern = layout.pattern();
      use.dense_rows = length;
      for (int head = 0; head < layout.heads(); ++head) use.rows.push_back(layout.rows(head));
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      CacheUse& use = uses[layout_of_layer[i]];
      use.layers.push_back(static_cast<std::int64_t>(i));
      const TensorView &k = layers[i].keys.view(), &v = layers[i].values.view();
      use.bytes += static_cast<std::size_t>(k.bytes() + v.bytes());
      const std::int64_t dense = batch * layouts[layout_of_layer[i]].heads() * length * (k.cols() + v.cols());
      use.dense_bytes += static_cast<std::size_t>(dense * size_of(k.dtype));
    }
    return uses;
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
  std::int64_t step_words = 0;
  std::vector<std::int32_t> fixed;
  cache->layers.resize(patterns_.size());
  cache->layout_of_layer.resize(patterns_.size());
  for (const LayerGroup& group : layer_groups(patterns_)) {
    const CacheLayout& layout =
        cache->layouts.emplace_back(group.pattern, static_cast<int>(shape.heads), length);
    layout.append_fixed(fixed);
    step_words += layout.step_words();
    for (const std::int64_t member : group.members) {
      const auto layer = static_cast<std::size_t>(member);
      cache->layout_of_layer[layer] = cache->layouts.size() - 1;
      cache->layers[layer] = {
          Tensor(*device.pool, {batch, layout.rows(), shape.qk_size}, dtype, "decode cache"),
          Tensor(*device.pool, {batch, layout.rows(), shape.v_size}, dtype, "decode cache")};
    }
  }
  cache->fixed = Tensor(*device.pool, {static_cast<std::int64_t>(fixed.size())}, DType::i32, "decode cache");
  cache->step = Tensor(*device.pool, {step_words}, DType::i32, "decode cache");
  device.upload(cache->fixed, fixed.data());
  return cache;
}

std::vector<DecodeKeys> SparseTransformer::upload_keys(Cache& cache, std::int64_t position) const {
  std::vector<std::int32_t> words;
  std::vector<DecodeKeys> keys;
  const std::int32_t* fixed = cache.fixed.view().as<std::int32_t>();
  for (const CacheLayout& layout : cache.layouts) {
    const std::int32_t* step = cache.step.view().as<std::int32_t>() + words.size();
    layout.append_step(position, words);
    const std::int32_t* row = step + layout.groups() + 1;
    keys.push_back({.keys = row + layout.heads(),
                    .key_start = step,
                    .row = row,
                    .group_of_head = fixed,
                    .first_row = fixed + layout.heads()});
    fixed += layout.fixed_words();
  }
  device_.upload_async(cache.step.view().data, words.data(), words.size() * sizeof(std::int32_t));
  return keys;
}

Tensor SparseTransformer::decode(Ctx& ctx, DecodeCache& decode_cache, const Sequences& s,
                                 std::int64_t position) {
  auto& cache = dynamic_cast<Cache&>(decode_cache);
  WEFT_CHECK(!ctx.tape && !ctx.training, "decode is for sampling: no tape, no dropout");
  check_sequences(s);
  WEFT_CHECK((s.tokens.shape() == Shape{cache.batch, cache.length}), "decode: tokens must be (", cache.batch,
             ", ", cache.length, ") of i32, like the cache, got ", shape_text(s.tokens));
  WEFT_CHECK(position >= 0 && position < cache.length, "decode: position ", position, " of a cache of ",
             cache.length);
  const std::vector<DecodeKeys> keys = upload_keys(cache, position);
  Var x = embedding_.forward(ctx, store_, s, position, 1);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Var normed = blocks_[i].attention_norm.forward(ctx, store_, x);
    const Var a =
        blocks_[i].attention.decode(ctx, store_, normed, cache.layers[i], keys[cache.layout_of_layer[i]]);
    x = attend_and_mix(ctx, blocks_[i], x, a);
  }
  return output(ctx, x).value.reshaped({cache.batch, config_.vocab});
}

std::unique_ptr<Model> make_sparse_transformer(const Config& config, ParameterStore& store, Device& device) {
  return std::make_unique<SparseTransformer>(config, store, device);
}

}  // namespace weft
