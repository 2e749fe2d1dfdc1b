// SPDX-License-Identifier: MIT
// The model as a list of layers, forward and decoding.
#include "models/sparse_transformer.h"

#include <cmath>

#include "models/decoding.h"
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

void SparseTransformer::run_block(Ctx& ctx, std::size_t layer, ResidualStream& x,
                                  const AttentionMaps& maps) const {
  const ResidualBlock& block = blocks_[layer];
  x.add(block.attention.forward(ctx, store_, x.normed(ctx, store_, block.attention_norm), maps,
                                recompute_attention_));
  x.add(block.mlp.forward(ctx, store_, x.normed(ctx, store_, block.mlp_norm)));
}

ResidualStream SparseTransformer::hidden(Ctx& ctx, const Sequences& s) {
  check_sequences(s);
  const auto stream = [this](const Var& x) { return ResidualStream(x, config_.dropout); };
  ResidualStream x = stream(dropout(ctx, embedding_.forward(ctx, store_, s), config_.embedding_dropout));
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    WEFT_CHECK(patterns_[i]->causal(), "layer ", i, ": ", patterns_[i]->name(),
               " sees what the model is to predict; a model needs causal patterns");
    const AttentionMaps maps = maps_.get(*patterns_[i], s.tokens.shape()[1]).maps();
    if (i == 0) ctx.mark(blocks_[i].attention_norm.weight.index);
    if (!recompute_blocks_) {
      run_block(ctx, i, x, maps);
      continue;
    }
    const Block block = [this, i, maps, stream](Ctx& c, const Var& in) {
      ResidualStream inside = stream(in);
      run_block(c, i, inside, maps);
      return inside.value(c);
    };
    x = stream(recompute(ctx, block, x.value(ctx)));
  }
  return x;
}

Var SparseTransformer::output(Ctx& ctx, ResidualStream x) const {
  const Var h = final_norm_ ? x.normed(ctx, store_, *final_norm_) : x.value(ctx);
  return output_ ? output_->forward(ctx, store_, h) : linear(ctx, h, store_.var(embedding_.table), Var{});
}

Var SparseTransformer::token_losses(Ctx& ctx, const Sequences& s) {
  return cross_entropy(ctx, output(ctx, hidden(ctx, s)), s.tokens);
}

Tensor SparseTransformer::logits(Ctx& ctx, const Sequences& s) { return output(ctx, hidden(ctx, s)).value; }

std::unique_ptr<DecodeCache> SparseTransformer::make_cache(Device& device, std::int64_t batch,
                                                           std::int64_t length) {
  WEFT_CHECK(batch > 0 && length > 0 && length <= config_.context,
             "a cache needs batch > 0 and a length from 1 to ", "model.context = ", config_.context, ", got ",
             batch, " and ", length);
  return std::make_unique<LayerCaches>(device, patterns_, attention_shape(config_), store_.compute_dtype(),
                                       batch, length);
}

Tensor SparseTransformer::decode_step(Ctx& ctx, DecodeCache& decode_cache, const Sequences& s) {
  auto& cache = dynamic_cast<LayerCaches&>(decode_cache);
  WEFT_CHECK(!ctx.tape && !ctx.training, "decode is for sampling: no tape, no dropout");
  check_sequences(s);
  WEFT_CHECK((s.tokens.shape() == Shape{cache.batch(), cache.length()}), "decode: tokens must be (",
             cache.batch(), ", ", cache.length(), ") of i32, like the cache, got ", shape_text(s.tokens));
  std::vector<DecodeBlock> blocks;
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    blocks.push_back(blocks_[i].decoding(store_, cache.layer(i), cache.keys(i)));
  Tensor x = embedding_.decode(ctx, store_, s, cache.position());
  if (!blocks.empty()) x = decode_blocks(ctx, x, std::move(blocks), attention_shape(config_));
  const Tensor weight = store_.var(output_ ? output_->weight : embedding_.table).value;
  return decode_linear(ctx, store_, x, final_norm_.get(), weight).reshaped({cache.batch(), config_.vocab});
}

std::unique_ptr<Model> make_sparse_transformer(const Config& config, ParameterStore& store, Device& device) {
  return std::make_unique<SparseTransformer>(config, store, device);
}

}  // namespace weft
