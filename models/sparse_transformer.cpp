// SPDX-License-Identifier: MIT
// The Sparse Transformer, from tokens to the loss of each (arXiv 1904.10509, section 5.2):
//   H_0 = embed(X)                           shifted: row t holds token t - 1, and predicts token t
//   a(H) = dropout(attention(norm(H)))       attention over the pattern of the layer
//   b(H) = dropout(ff(norm(H + a(H))))       ff: two matrices with an activation between
//   H_k = H_(k-1) + a(H_(k-1)) + b(H_(k-1))  k = 1 .. N
//   y = softmax(norm(H_N) W_out)             the loss of token t is -log y_t
// Each line below that computes names its part. Sampling, one position at a time:
// models/decoding.cpp.
#include "models/sparse_transformer.h"

#include "src/config/conditions.h"
#include "src/config/config.h"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace weft {
// Layers add their parameters to the store, which allocates and initialises all of them together.
SparseTransformer::SparseTransformer(const Config& config, ParameterStore& store, Device& device)
    : device_(device),
      config_(config.model),
      conditions_(conditions(config)),
      separator_(config.data.separator),
      recompute_blocks_(config.train.recompute == Recompute::block),
      recompute_attention_(config.train.recompute == Recompute::attention),
      store_(store),
      embedding_(store, config_, condition_rows(conditions_)),
      patterns_(layer_patterns(config_)),
      maps_(device, static_cast<int>(config_.heads), attention_shape(config_).head_size()) {
  const ParamKind matrices =
      config.train.optimizer == Optimizer::adamw ? ParamKind::compute : ParamKind::matrix;
  for (std::size_t i = 0; i < patterns_.size(); ++i)
    blocks_.emplace_back(store, str("blocks.", i), config_, matrices,
                         dynamic_layer(config, *patterns_[i], i));
  if (config_.final_norm)
    final_norm_ = std::make_unique<LayerNorm>(store, "final_norm", config_.width, config_.norm_eps);
  if (!config_.tied_output)  // W_out starts at 0: the first predictions are uniform
    output_ = std::make_unique<Linear>(store, "output", config_.width, config_.vocab, 0.0, false);
}

Var SparseTransformer::token_losses(Ctx& ctx, const Sequences& s) {
  return cross_entropy(ctx, output(ctx, hidden(ctx, s)), s.tokens);
}

Tensor SparseTransformer::logits(Ctx& ctx, const Sequences& s) {
  return output(ctx, hidden(ctx, s)).value;
}

// H_N. With train.recompute: block, a block keeps its input alone and runs again in the backward
// pass.
ResidualStream SparseTransformer::hidden(Ctx& ctx, const Sequences& s, const OnLayer& on_layer) {
  check_sequences(s);
  const auto stream = [this](const Var& h) { return ResidualStream(h, config_.dropout); };
  const QkOptions qk = of_qk(s);
  const Tensor starts = separator_ < 0 ? Tensor{} : document_starts(ctx, s.tokens, separator_);
  std::map<const AttentionPattern*, KeptMaps> known;
  ResidualStream h =
      stream(dropout(ctx, embedding_.forward(ctx, store_, s), config_.embedding_dropout));
  const Var embedded = config_.unet ? h.value(ctx) : Var{};
  std::vector<Var> skips;  // with model.unet: outputs of the first half of the blocks
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    WEFT_CHECK(patterns_[i]->causal(), "layer ", i, ": ", patterns_[i]->name(),
               " sees what the model is to predict; a model needs causal patterns");
    const auto [found, is_new] =
        known.try_emplace(patterns_[i].get(), maps_.get(*patterns_[i], s.tokens.shape()[1]).maps());
    KeptMaps& maps = found->second;
    if (is_new && starts) maps = segment_maps(ctx, maps.maps, starts, true);
    if (i == 0) ctx.gradients_complete_from(blocks_[i].attention_norm.weight.index);
    if (blocks_[i].mix)
      h = stream(blocks_[i].mix->forward(ctx, store_, h.value(ctx), embedded, skips));
    const bool is_skip = config_.unet && i < blocks_.size() / 2;
    if (!recompute_blocks_ || on_layer) {
      run_block(ctx, i, h, maps, qk, on_layer);
      if (is_skip) skips.push_back(h.value(ctx));
      continue;
    }
    const Block block = [this, i, maps, qk, stream](Ctx& c, const Var& in) {
      ResidualStream inside = stream(in);
      run_block(c, i, inside, maps, qk, {});
      return inside.value(c);
    };
    h = stream(recompute(ctx, block, h.value(ctx)));
    if (is_skip) skips.push_back(h.value(ctx));
  }
  return h;
}

// h += a(h), then h += b(h). The stream applies dropout, and adds as the next norm reads the sum.
void SparseTransformer::run_block(Ctx& ctx, std::size_t layer, ResidualStream& h, KeptMaps maps,
                                  const QkOptions& qk, const OnLayer& on_layer) {
  const ResidualBlock& block = blocks_[layer];
  Var packed =
      block.attention.qkv.forward(ctx, store_, h.normed(ctx, store_, block.attention_norm));
  if (on_layer) on_layer(layer, packed.value, nullptr);
  packed = block.attention.rotate(ctx, store_, packed, qk, maps, maps_);
  if (on_layer) on_layer(layer, packed.value, &maps);
  if (on_layer && layer + 1 == blocks_.size()) return;
  h.add(block.attention.attend(ctx, store_, std::exchange(packed, {}), maps, recompute_attention_));
  h.add(block.mlp.forward(ctx, store_, h.normed(ctx, store_, block.mlp_norm)));
}

SeenKeys SparseTransformer::seen(Ctx& ctx, const Sequences& text, std::size_t layer, int head) {
  SeenKeys seen;
  hidden(ctx, text, [&](std::size_t i, const Tensor&, const KeptMaps* maps) {
    if (i == layer && maps) seen = seen_keys(*maps, head, text.tokens.shape()[1]);
  });
  return seen;
}

// norm(H_N) W_out
Var SparseTransformer::output(Ctx& ctx, ResidualStream x) const {
  const Var h = final_norm_ ? x.normed(ctx, store_, *final_norm_) : x.value(ctx);
  return output_ ? output_->forward(ctx, store_, h)
                 : linear(ctx, h, store_.var(embedding_.table), Var{});
}

// With one axis angles are relative: where a short window lies makes no difference.
QkOptions SparseTransformer::of_qk(const Sequences& s) {
  QkOptions qk;
  if (config_.qk_norm == QkNorm::rms) qk.norm_eps = config_.norm_eps;
  if (config_.positions != PositionCode::rotary) return qk;
  if (!rotary_table_) rotary_table_ = rotary_table(device_, config_, wide(store_.compute_dtype()));
  qk.table = rotary_table_;
  qk.positions = s.positions;
  if (config_.position_axes.size() > 1) qk.offsets = s.offsets;
  return qk;
}

void SparseTransformer::check_sequences(const Sequences& s) const {
  const TensorView& t = s.tokens.view();
  WEFT_CHECK(t.rank == 2 && t.dtype == DType::i32 && t.shape[0] > 0 && t.shape[1] > 0 &&
                 t.shape[1] <= config_.context,
             "tokens must be (B, T) of i32 with T from 1 to model.context = ", config_.context,
             ", got ", shape_text(t), " of ", name_of(t.dtype));
  const auto kinds = static_cast<int64_t>(conditions_.size());
  WEFT_CHECK((s.conditions ? s.conditions.view().cols() : 0) == kinds, "this model is told ", kinds,
             " things about a sequence (conditions (B, ", kinds, ")), got ",
             shape_text(s.conditions));
}
}  // namespace weft
