// SPDX-License-Identifier: MIT
// Every config key, once: name, member, comment, limits.
#include "src/config/fields.h"

#include "src/config/names.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr double kMost = 1e15;  // of counts: below 2^53, so that limits are exact

Range at_least(double low) { return {low, kMost}; }

Range between(double low, double high) { return {low, high}; }

Range more_than(double low) { return {low, std::numeric_limits<double>::infinity(), true}; }

Range share() { return {0, 1, false, true}; }  // at least 0 and less than 1

// A key that may differ when a run is resumed.
Field marked(Field field, OnResume rule, const char* effect) {
  field.on_resume = rule;
  field.effect = effect;
  return field;
}

// A key with an enumeration as its value, and the table of names.
template <class E>
Field one_of(const char* key, E* value, std::vector<std::pair<std::string, E>> table,
             const char* comment) {
  Field field{key, {}, comment};
  for (const auto& [name, unused] : table) field.choices.push_back(name);
  const auto name = [value, table] {
    const auto at = std::ranges::find(table, *value, &std::pair<std::string, E>::second);
    return at == table.end() ? "" : at->first;
  };
  const auto set_name = [value, table](const std::string& name) {
    *value = std::ranges::find(table, name, &std::pair<std::string, E>::first)->second;
  };
  field.value = std::make_shared<const Enumerated>(Enumerated{name, set_name});
  return field;
}

Field free(Field field) { return marked(std::move(field), OnResume::free, ""); }

Field asked(Field field, const char* effect) {
  return marked(std::move(field), OnResume::asked, effect);
}

std::string number_text(double x) { return str(static_cast<int64_t>(x)); }

void data_fields(DataConfig& c, const Visit& visit) {
  visit({"data.path", &c.path, "HDF5 file made by prepare, as given or beside the config"});
  visit({"data.mix", &c.mix,
         "a second file of images of the same shape, mixed in during training; none: \"\""});
  visit({"data.mix_rate", &c.mix_rate, "probability that an image comes from data.mix", share()});
  visit({"data.mix_items", &c.mix_items, "only the first of its images; 0: all", at_least(0)});
  visit({"data.separator", &c.separator,
         "token that ends its document: none attends across the border, positions run on; -1: no "
         "documents",
         between(-1, 1 << 20)});
  visit({"data.labels", &c.labels,
         "the model is told the class of an image, from /labels of the data"});
  visit({"data.classes", &c.classes, "with labels: how many classes there are", between(1, 65536)});
}

void augment_fields(AugmentConfig& c, const Visit& visit) {
  visit({"augment.rotation", &c.rotation, "by 0, 90, 180 or 270 degrees"});
  visit({"augment.color", &c.color, "the 6 orders of the channels"});
  visit({"augment.transposition", &c.transposition, "rows become columns"});
  visit({"augment.reversal", &c.reversal, "by 180 degrees"});
  visit({"augment.jigsaw", &c.jigsaw, "g: the (g * g)! orders of g x g tiles; 0: off",
         between(0, 3)});
  visit({"augment.random_order", &c.random_order,
         "this many fixed random orders of all sub-pixels; 0: off", between(0, 1024)});
  visit({"augment.random_order_seeds", &c.random_order_seeds,
         "of the first, the second ...; then counted on", at_least(0)});
  visit({"augment.randaugment", &c.randaugment, "N: random operations on an image; 0: off",
         between(0, 16)});
  visit({"augment.randaugment_magnitude", &c.randaugment_magnitude, "M", between(0, 10)});
  visit({"augment.randaugment_rate", &c.randaugment_rate, "share of images that it is applied to",
         between(0, 1)});
  visit({"augment.flip", &c.flip, "left to right with probability 1/2; the model is not told"});
  visit({"augment.conditional", &c.conditional,
         "false: the model is told nothing of the rest, either"});
  visit({"augment.permute_positions", &c.permute_positions,
         "each sub-pixel keeps the position that it came from"});
  visit({"augment.unaugmented_rate", &c.unaugmented_rate,
         "share of images to which no kind is applied; 0: as uniform draws give", share()});
}

void init_fields(InitConfig& c, const Visit& visit) {
  visit({"model.init.token_std", &c.token_std, "standard deviation of token and start embeddings",
         more_than(0)});
  visit({"model.init.position_std", &c.position_std, "of each position table", more_than(0)});
  visit({"model.init.weight_gain", &c.weight_gain, "g: the scale of all other weights",
         more_than(0)});
  visit(one_of<WeightRule>(
      "model.init.weight_rule", &c.weight_rule,
      {{"variance", WeightRule::variance}, {"std", WeightRule::standard_deviation}},
      "variance: N(0, g / fan_in); std: N(0, g^2 / fan_in)"));
}

void model_fields(ModelConfig& c, const Visit& visit) {
  const std::string kinds = joined(patterns(), " | ", &PatternKind::kind);
  visit({"model.kind", &c.kind, "architecture"});
  visit({"model.vocab", &c.vocab, "number of token values; 256 for bytes", between(2, 1048576)});
  visit({"model.context", &c.context, "n: positions a sequence has", between(1, 1 << 30)});
  visit({"model.layers", &c.layers, "N: residual blocks", between(1, 10000)});
  visit({"model.width", &c.width, "d: features of a position", between(8, 1 << 20)});
  visit({"model.heads", &c.heads, "attention heads; width / heads is a multiple of 8 from 8 to 256",
         between(1, 65536)});
  visit({"model.qk_ratio", &c.qk_ratio, "width of all queries (and of all keys) / d",
         Range{0, 16, true}});
  visit({"model.mlp_ratio", &c.mlp_ratio, "hidden width of the MLP / d", Range{0, 64, true}});
  visit(one_of<Activation>("model.activation", &c.activation,
                           {{"gelu", Activation::gelu}, {"relu2", Activation::relu2}},
                           "of the MLP: x sigmoid(1.702 x) or max(x, 0)^2"));
  visit({"model.dropout", &c.dropout, "at the end of each residual branch", share()});
  visit({"model.embedding_dropout", &c.embedding_dropout, "after the embedding", share()});
  visit({"model.tied_output", &c.tied_output, "logits from the token embedding"});
  visit({"model.final_norm", &c.final_norm, "layernorm before the logits"});
  visit({"model.norm_eps", &c.norm_eps, "added to the variance in layernorm", more_than(0)});
  visit({"model.previous_token", &c.previous_token,
         "a position embeds the token before its own, too, from a table of its own"});
  visit(
      {"model.canon", &c.canon,
       "behind each norm of a block, a learned weighted sum over a position and the three before"});
  visit(
      {"model.unet", &c.unet,
       "a block reads a learned mixture of the stream, the embedding and, in the second half, the "
       "output of the mirrored block"});
  visit(one_of<PositionCode>("model.positions", &c.positions,
                             {{"learned", PositionCode::learned}, {"rotary", PositionCode::rotary}},
                             "embeddings, or rotated queries and keys"));
  visit({"model.rotary_base", &c.rotary_base, "pair j of n turns by base^(-j / n) a position",
         more_than(0)});
  visit(one_of<QkNorm>("model.qk_norm", &c.qk_norm, {{"none", QkNorm::none}, {"rms", QkNorm::rms}},
                       "of queries and keys, by heads"));
  visit({"model.qk_learnt", &c.qk_learnt, "with qk_norm: a learned scale of each head's scores"});
  visit({"model.position_axes", &c.position_axes,
         "1 to 3 axes, outermost first, product at least context: text [n / stride, stride], "
         "images [32, 32, "
         "3]",
         between(1, 1 << 30)});
  visit({"model.attention", &c.attention, "patterns, cycled over the layers; kind: " + kinds});
  init_fields(c.init, visit);
}

void optimizer_fields(TrainConfig& c, const Visit& visit) {
  visit(one_of<Optimizer>("train.optimizer", &c.optimizer,
                          {{"adamw", Optimizer::adamw}, {"muon", Optimizer::muon}},
                          "muon for the matrices of the blocks, AdamW for the rest"));
  visit({"train.learning_rate", &c.learning_rate, "at its peak", more_than(0)});
  visit({"train.final_learning_rate", &c.final_learning_rate, "share of it at the last step",
         between(0, 1)});
  visit({"train.warmup", &c.warmup, "steps of linear warm-up", at_least(0)});
  visit(one_of<Schedule>("train.schedule", &c.schedule,
                         {{"cosine", Schedule::cosine},
                          {"linear", Schedule::linear},
                          {"constant", Schedule::constant}},
                         "after the warm-up"));
  visit({"train.beta1", &c.beta1, "AdamW: decay of the mean", share()});
  visit({"train.beta2", &c.beta2, "AdamW: decay of the mean square", share()});
  visit({"train.eps", &c.eps, "AdamW: added to the root of the mean square", more_than(0)});
  visit({"train.weight_decay", &c.weight_decay, "AdamW: of matrices and embeddings",
         between(0, 100)});
  visit({"train.muon_learning_rate", &c.muon_learning_rate, "Muon: at its peak", more_than(0)});
  visit({"train.muon_momentum", &c.muon_momentum, "Muon: from 0.85 in 300 updates", share()});
  visit(
      {"train.muon_weight_decay", &c.muon_weight_decay, "Muon: of its matrices", between(0, 100)});
  visit({"train.clip", &c.clip, "global norm to which gradients are clipped; 0: off", at_least(0)});
}

void train_fields(TrainConfig& c, const Visit& visit) {
  visit(marked({"train.steps", &c.steps, "updates", at_least(1)}, OnResume::told,
               "learning rates follow the schedule of the new number"));
  visit({"train.batch", &c.batch, "sequences of full context in one update", between(1, 1 << 20)});
  visit({"train.batch_tokens", &c.batch_tokens,
         "instead of batch: tokens in one update; 0: batch counts", at_least(0)});
  visit(asked({"train.accumulation", &c.accumulation,
               "micro-batches in one update, of each process; divides batch", between(1, 1 << 20)},
              "gradients are added up in another order"));
  optimizer_fields(c, visit);
  visit({"train.ema_decay", &c.ema_decay, "moving average of the weights; 0: none", share()});
  visit(free(one_of<Recompute>(
      "train.recompute", &c.recompute,
      {{"none", Recompute::none}, {"attention", Recompute::attention}, {"block", Recompute::block}},
      "the backward pass recomputes nothing, attention behind q, k and v, or blocks")));
  visit({"train.context_schedule", &c.context_schedule,
         "[step, context] pairs: sequences are this long from that step on; []: always full",
         at_least(0)});
  visit({"train.loss_scale", &c.loss_scale, "f16: initial value", Range{1, 16777216}});
  visit({"train.loss_scale_window", &c.loss_scale_window,
         "f16: good steps before the scale is doubled", at_least(1)});
  visit(free({"train.graph", &c.graph, "capture the step as a CUDA graph"}));
  visit(asked(one_of<DType>("train.reduce_dtype", &c.reduce_dtype,
                            {{"f32", DType::f32}, {"bf16", DType::bf16}},
                            "several processes: type of all-reduced gradients"),
              "gradients are rounded otherwise before they are summed"));
  visit(asked({"train.bucket_mb", &c.bucket_mb,
               "several processes: MB in one all-reduce, at least; 0: all gradients at once",
               between(0, 65536)},
              "gradients may be added up in another order"));
  visit(asked({"train.shard_optimizer", &c.shard_optimizer,
               "several processes: each updates a part of the weights (ZeRO-1)"},
              "gradients may be added up in another order"));
  visit(free({"train.log_every", &c.log_every, "steps between log lines", at_least(1)}));
  visit(free({"train.eval_every", &c.eval_every, "steps between evaluations; 0: only at the end",
              at_least(0)}));
  visit(free({"train.save_every", &c.save_every, "steps between numbered checkpoints; 0: none",
              at_least(0)}));
  visit(free({"train.eval_tokens", &c.eval_tokens,
              "at evaluations during training; 0: the whole split", at_least(0)}));
  visit(free({"train.keep", &c.keep,
              "numbered checkpoints kept besides latest.h5 and best.h5; 0: all", at_least(0)}));
}
}  // namespace

std::string Range::text() const {
  const bool has_low = low > -kMost, has_high = high < kMost;
  if (has_low && has_high && !open_low && !open_high)
    return " from " + number_text(low) + " to " + number_text(high);
  std::string s;
  if (has_low) s += (open_low ? " of more than " : " of at least ") + number_text(low);
  if (has_high)
    s += str(has_low ? " and " : " of ", open_high ? "less than " : "at most ", number_text(high));
  return s;
}

void for_each_field(Config& c, const Visit& visit) {
  visit(free({"name", &c.name, "of the run; its folder is runs/<name>"}));
  visit({"seed", &c.seed, "of initial weights, data order and dropout"});
  visit(one_of<DType>("precision", &c.precision,
                      {{"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}},
                      "of kernels; a CPU computes in f32"));
  data_fields(c.data, visit);
  augment_fields(c.augment, visit);
  model_fields(c.model, visit);
  train_fields(c.train, visit);
}

void for_each_pattern_field(PatternSpec& p, const Visit& visit) {
  std::vector<std::string> kinds;
  for (const PatternKind& kind : patterns()) kinds.push_back(kind.kind);
  const Range position = between(0, 1 << 30), size = between(1, 1 << 30);
  visit({"kind", &p.kind, "which", {}, kinds});
  visit({"stride", &p.stride, "l: window, column distance, or block length", size});
  visit({"c", &p.c, "fixed: summary positions at the end of each block", size});
  visit({"num_verts", &p.num_verts, "fixed: distinct sub-blocks of width c that heads take in turn",
         between(1, 65536)});
  visit({"block", &p.block, "edge of the blocks of a block-level form; 0: exact positions",
         position});
  visit({"vertsize", &p.vertsize, "fixed with blocks: c = vertsize * block", size});
  visit({"causal", &p.causal, "false: later keys are seen too"});
  visit({"of", &p.of,
         "merged: the patterns of the union; heads: the patterns that heads take in turn"});
  visit({"window", &p.window,
         "longformer, bigbird: width of the sliding window; routing, lsh: keys seen", position});
  visit(
      {"dilation", &p.dilation, "longformer: distance of the window's keys, heads in turn", size});
  visit({"globals", &p.globals, "longformer, bigbird: what sees all and is seen by all", position});
  visit({"random", &p.random, "bigbird: random blocks a row of blocks", position});
  visit({"seed", &p.seed, "bigbird: of the random blocks"});
  visit({"grid", &p.grid, "convolution: size of the grid of keys, [W] or [H, W]", size});
  visit({"filter", &p.filter, "convolution: size of the filter, [w] or [h, w]", size});
  visit({"step", &p.step, "convolution: its stride", size});
  visit({"transposed", &p.transposed, "convolution: queries and keys swapped"});
  visit({"file", &p.file, "layout: an HDF5 or numpy file"});
  visit({"dataset", &p.dataset, "layout: its name in the HDF5 file"});
  visit({"clusters", &p.clusters, "routing: clusters of queries", between(0, 1024)});
  visit({"rounds", &p.rounds, "lsh: independent hashes", between(1, 8)});
  visit({"buckets", &p.buckets, "lsh: of a hash, at least; 0: context / 64", between(0, 1024)});
  visit({"blocks", &p.blocks, "topk_blocks: blocks that a query sees, the own one included",
         position});
  visit({"prefix", &p.prefix, "any that sees later keys: only those below this; 0: all of them",
         position});
  visit({"documents", &p.documents, "any: ascending first positions; none sees across a border",
         position});
  visit({"length", &p.length, "any: positions from here on neither see nor are seen; 0: none",
         position});
}
}  // namespace weft
