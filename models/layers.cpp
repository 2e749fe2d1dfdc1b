// SPDX-License-Identifier: MIT
#include "models/layers.h"

#include "kernels/layers/canon.h"
#include "kernels/sampling/decode_linear.h"
#include "models/model.h"
#include "src/config/config.h"

#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
Linear::Linear(ParameterStore& store, const std::string& name, int64_t in, int64_t out, double std,
               bool with_bias, ParamKind kind)
    : weight(store.add(name + ".weight", {out, in}, Init::normal(std), kind)),
      bias(with_bias ? store.add(name + ".bias", {out}, Init::constant(0)) : Param{}) {}

Var Linear::forward(Ctx& ctx, const ParameterStore& store, const Var& x) const {
  return linear(ctx, x, store.var(weight), bias.index >= 0 ? store.var(bias) : Var{});
}

Affine Linear::affine(Ctx& ctx, const ParameterStore& store, const Var& x) const {
  return {linear(ctx, x, store.var(weight), Var{}), bias.index >= 0 ? store.var(bias) : Var{}};
}

DecodeAffine Linear::decoding(const ParameterStore& store) const {
  WEFT_CHECK(bias.index >= 0, "a residual block has biases");
  return {store.var(weight).value, store.var(bias).value};
}

LayerNorm::LayerNorm(ParameterStore& store, const std::string& name, int64_t size, double epsilon)
    : weight(store.add(name + ".weight", {size}, Init::constant(1), ParamKind::wide)),
      bias(store.add(name + ".bias", {size}, Init::constant(0), ParamKind::wide)),
      eps(epsilon) {}

Var LayerNorm::forward(Ctx& ctx, const ParameterStore& store, const Var& x) const {
  return layernorm(ctx, x, store.var(weight), store.var(bias), eps);
}

SumAndNorm LayerNorm::forward(Ctx& ctx, const ParameterStore& store, const Var& x,
                              const Affine& branch, double dropout) const {
  return residual_layernorm(ctx, x, branch, dropout, store.var(weight), store.var(bias), eps);
}

DecodeNorm LayerNorm::decoding(const ParameterStore& store) const {
  return {store.var(weight).value, store.var(bias).value, eps};
}

BlockNorm::BlockNorm(ParameterStore& store, const std::string& name, const ModelConfig& m)
    : LayerNorm(store, name, m.width, m.norm_eps) {
  if (m.canon)
    canon = store.add(name + ".canon", {kCanonTaps * m.width}, Init::constant(0), ParamKind::wide);
}

Tensor decode_linear(Ctx& ctx, const ParameterStore& store, const Tensor& x, const LayerNorm* norm,
                     const Tensor& weight) {
  WEFT_CHECK(!ctx.tape, "decode_linear is for sampling, without a tape");
  Shape shape = x.shape();
  shape.back() = weight.view().rows();
  const Tensor y = ctx.empty(shape, x.dtype());
  DecodeLinear k{.y = y, .x = x, .w = weight, .b = {}, .residual = {}};
  if (norm) {
    const DecodeNorm n = norm->decoding(store);
    k.norm_w = n.w, k.norm_b = n.b, k.eps = n.eps;
  }
  ctx.launch(k);
  return y;
}

namespace {
// Of a position, for its index on axis a: the product of the later axes.
int64_t divisor_of(const std::vector<int64_t>& axes, std::size_t a) {
  return std::accumulate(axes.begin() + static_cast<std::ptrdiff_t>(a) + 1, axes.end(), int64_t{1},
                         std::multiplies<>());
}
}  // namespace

Tensor rotary_table(Device& device, const ModelConfig& m, DType wide) {
  const std::vector<int64_t>& axes = m.position_axes;
  std::vector<std::size_t> turning;
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (axes[a] > 1 || axes.size() == 1) turning.push_back(a);

  struct Pair {
    int64_t divisor = 1, length = 1;
    double speed = 0;
  };

  std::vector<Pair> of_pair;
  const auto pairs = static_cast<std::size_t>(attention_shape(m).qk_size / 2);
  for (std::size_t i = 0, left = turning.size(); left > 0; ++i, --left) {
    const std::size_t a = turning[i], count = (pairs - of_pair.size() + left - 1) / left;
    for (std::size_t j = 0; j < count; ++j)
      of_pair.push_back(
          {divisor_of(axes, a), a == 0 ? m.context + 1 : axes[a],
           std::pow(m.rotary_base, -static_cast<double>(j) / static_cast<double>(count))});
  }
  of_pair.resize(pairs);
  std::vector<double> values;
  for (int64_t t = 0; t <= m.context; ++t)
    for (const Pair& pair : of_pair) {
      const double angle = static_cast<double>(t / pair.divisor % pair.length) * pair.speed;
      values.insert(values.end(), {std::cos(angle), std::sin(angle)});
    }
  const std::vector<float> rounded(values.begin(), values.end());
  const Tensor table(*device.pool, {m.context + 1, static_cast<int64_t>(pairs), 2}, wide,
                     "rotary table");
  device.upload(table,
                wide == DType::f64 ? static_cast<const void*>(values.data()) : rounded.data());
  return table;
}

Embedding::Embedding(ParameterStore& store, const ModelConfig& m, int64_t condition_rows)
    : table(store.add("token_embedding", {m.vocab, m.width}, Init::normal(m.init.token_std))),
      start(store.add("start", condition_rows > 0 ? Shape{condition_rows, m.width} : Shape{m.width},
                      Init::normal(m.init.token_std))) {
  const std::size_t axes = m.positions == PositionCode::rotary ? 0 : m.position_axes.size();
  for (std::size_t a = 0; a < axes; ++a) {
    positions.push_back(store.add(str("position.", a), {m.position_axes[a], m.width},
                                  Init::normal(m.init.position_std)));
    divisors.push_back(divisor_of(m.position_axes, a));
  }
  if (m.previous_token)
    previous = store.add("previous_embedding", {m.vocab, m.width}, Init::normal(m.init.token_std));
}

EmbeddingTables Embedding::tables(const ParameterStore& store) const {
  EmbeddingTables tables{store.var(table), store.var(start)};
  for (std::size_t a = 0; a < positions.size(); ++a)
    tables.axes.push_back({store.var(positions[a]), divisors[a]});
  if (previous) tables.previous = store.var(*previous);
  return tables;
}

Var Embedding::forward(Ctx& ctx, const ParameterStore& store, const Sequences& sequences) const {
  return embedding(ctx, sequences, tables(store));
}

Tensor Embedding::decode(Ctx& ctx, const ParameterStore& store, const Sequences& sequences,
                         const int32_t* position) const {
  return embedding_row(ctx, sequences, tables(store), position).value;
}

Attention::Attention(ParameterStore& store, const std::string& name, int64_t width,
                     const DynamicLayer& layer, double std, double proj_std, ParamKind matrices,
                     bool learned_gain)
    : shape(layer.shape),
      qkv(store, name + ".qkv", width, shape.columns(), std, true, matrices),
      gain(learned_gain ? std::optional(store.add(name + ".gain", {shape.heads}, Init::constant(1),
                                                  ParamKind::wide))
                        : std::nullopt),
      dynamic(make_dynamic_heads(store, name, layer)),
      proj(store, name + ".proj", shape.heads * shape.v_size, width, proj_std, true, matrices) {}

Var Attention::rotate(Ctx& ctx, const ParameterStore& store, const Var& packed,
                      const QkOptions& of_qk, KeptMaps& maps, MapCache& cache) const {
  if (dynamic) maps.dynamic = dynamic->maps(ctx, store, cache, packed.value);
  QkOptions options = of_qk;
  if (gain) options.gain = store.var(*gain);
  const Var rotated = norm_and_rotate(ctx, packed, shape, options);
  if (dynamic) dynamic->rotated(ctx, rotated.value);
  return rotated;
}

Affine Attention::attend(Ctx& ctx, const ParameterStore& store, const Var& packed,
                         const KeptMaps& maps, bool recomputed) const {
  const Block block = [this, &store, maps](Ctx& c, const Var& q_k_v) {
    return proj.affine(c, store, sparse_attention(c, q_k_v, shape, maps)).matmul;
  };
  const Var matmul = recomputed ? recompute(ctx, block, packed) : block(ctx, packed);
  ctx.gradients_complete_from(proj.bias.index);
  return {matmul, store.var(proj.bias)};
}

Mlp::Mlp(ParameterStore& store, const std::string& name, int64_t width, int64_t hidden,
         double up_std, double down_std, Activation activation, ParamKind matrices)
    : up(store, name + ".up", width, hidden, up_std, true, matrices),
      down(store, name + ".down", hidden, width, down_std, true, matrices),
      f(activation) {}

Affine Mlp::forward(Ctx& ctx, const ParameterStore& store, const Var& x) const {
  const Var matmul =
      mlp(ctx, x, store.var(up.weight), store.var(up.bias), store.var(down.weight), f);
  ctx.gradients_complete_from(down.bias.index);
  return {matmul, store.var(down.bias)};
}

namespace {
// Standard deviation of a weight that sums over `fan_in` inputs.
double weight_std(const InitConfig& init, int64_t fan_in) {
  const auto n = static_cast<double>(fan_in);
  return init.weight_rule == WeightRule::standard_deviation ? init.weight_gain / std::sqrt(n)
                                                            : std::sqrt(init.weight_gain / n);
}

// The 2 N branches add up in the residual stream: the last matrix of each starts 1 / sqrt(2 N)
// smaller.
double last_weight_std(const ModelConfig& m, int64_t fan_in) {
  return 1 / std::sqrt(2.0 * static_cast<double>(m.layers)) * weight_std(m.init, fan_in);
}
}  // namespace

ResidualBlock::ResidualBlock(ParameterStore& store, const std::string& name, const ModelConfig& m,
                             ParamKind matrices, const DynamicLayer& layer)
    : mix(m.unet && layer.number > 0
              ? std::optional<UnetMix>(std::in_place, store, name + ".mix", m, layer.number)
              : std::nullopt),
      attention_norm(store, name + ".attention_norm", m),
      attention(store, name + ".attention", m.width, layer, weight_std(m.init, m.width),
                last_weight_std(m, layer.shape.heads * layer.shape.v_size), matrices, m.qk_learnt),
      mlp_norm(store, name + ".mlp_norm", m),
      mlp(store, name + ".mlp", m.width, mlp_width(m), weight_std(m.init, m.width),
          last_weight_std(m, mlp_width(m)), m.activation, matrices) {}

UnetMix::UnetMix(ParameterStore& store, const std::string& name, const ModelConfig& m,
                 int64_t number)
    : x_weight(store.add(name + ".x", {m.width}, Init::constant(1), ParamKind::wide)),
      start_weight(store.add(name + ".start", {m.width}, Init::constant(0), ParamKind::wide)) {
  if (number >= m.layers - m.layers / 2)
    skip_weight = store.add(name + ".skip", {m.width}, Init::constant(1), ParamKind::wide);
}

Var UnetMix::forward(Ctx& ctx, const ParameterStore& store, const Var& x, const Var& start,
                     std::vector<Var>& skips) const {
  std::vector<Var> terms = {x, start}, weights = {store.var(x_weight), store.var(start_weight)};
  if (skip_weight) {
    WEFT_CHECK(!skips.empty(), "unet: no output of a mirrored block is left");
    terms.push_back(std::move(skips.back()));
    skips.pop_back();
    weights.push_back(store.var(*skip_weight));
  }
  return weft::mix(ctx, terms, weights);
}

DecodeBlock ResidualBlock::decoding(const ParameterStore& store, const KeyValueCache& cache,
                                    const DecodeKeys& keys) const {
  return {
      .attention_norm = attention_norm.decoding(store),
      .qkv = attention.qkv.decoding(store),
      .proj = attention.proj.decoding(store),
      .mlp_norm = mlp_norm.decoding(store),
      .up = mlp.up.decoding(store),
      .down = mlp.down.decoding(store),
      .k = cache.keys,
      .v = cache.values,
      .keys = keys.keys,
      .key_start = keys.key_start,
      .key_positions = keys.key_positions,
      .group_of_head = keys.group_of_head,
      .first_row = keys.first_row,
      .own_row = keys.row,
      .longest = keys.longest,
  };
}

Tensor decode_blocks(Ctx& ctx, const Tensor& x, std::vector<DecodeBlock> blocks,
                     const AttentionShape& s, Activation f, const QkOptions& of_qk,
                     const int32_t* position, const Tensor& first_key, const Tensor& prepared) {
  WEFT_CHECK(!ctx.tape && !blocks.empty(), "decode_blocks is for sampling, without a tape");
  const int64_t batch = x.view().rows(), hidden = blocks[0].up.w.rows();
  const Tensor y = ctx.empty(x.shape(), x.dtype()),
               packed = ctx.empty({batch, s.columns()}, x.dtype()),
               attended = ctx.empty({batch, s.heads * s.v_size}, x.dtype()),
               mlp = ctx.empty({batch, hidden}, x.dtype());
  QkForm qk = form_of(of_qk);
  qk.first_at = position;
  ctx.launch(DecodeBlocks{
      .y = y,
      .x = x,
      .blocks = std::move(blocks),
      .heads = s.heads,
      .qk_size = s.qk_size,
      .v_size = s.v_size,
      .scale = s.scale(),
      .qk = qk,
      .f = f,
      .first_key = first_key,
      .packed = packed,
      .attended = attended,
      .hidden = mlp,
      .prepared = prepared,
  });
  return y;
}

Tensor prepare_blocks(Device& device, std::vector<DecodeBlock> blocks, const AttentionShape& s,
                      int64_t batch, int64_t texts) {
  if (blocks.empty()) return {};
  const TensorView up = blocks[0].up.w;
  DecodeBlocks k;
  const auto set_rows = [&](int64_t rows) {
    const auto of = [&](int64_t columns) {
      return TensorView{nullptr, up.dtype, 2, {rows, columns, 1, 1, 1}};
    };
    k.x = k.y = of(up.cols());
    k.packed = of(s.columns());
    k.attended = of(s.heads * s.v_size);
    k.hidden = of(up.rows());
  };
  k.blocks = std::move(blocks);
  k.heads = s.heads;
  k.qk_size = s.qk_size;
  k.v_size = s.v_size;
  const auto bytes_for = [&](int64_t rows) {
    set_rows(rows);
    return std::visit([&](const auto& queue) { return prepared_bytes(queue, k); }, device.queue);
  };
  if (bytes_for(texts) == 0) return {};
  const int64_t bytes = bytes_for(batch);
  Tensor prepared(*device.pool, {bytes}, DType::u8, "decode weights");
  k.prepared = prepared;
  std::visit([&](auto& queue) { prepare(queue, k); }, device.queue);
  device.synchronize();
  return prepared;
}

Var ResidualStream::value(Ctx& ctx) {
  if (const auto branch = std::exchange(waiting_, {}))
    x_ = residual_dropout(ctx, x_, *branch, dropout_);
  return x_;
}

Var ResidualStream::normed(Ctx& ctx, const ParameterStore& store, const LayerNorm& norm) {
  const auto branch = std::exchange(waiting_, {});
  if (!branch) return norm.forward(ctx, store, x_);
  SumAndNorm y = norm.forward(ctx, store, x_, *branch, dropout_);
  x_ = std::move(y.sum);
  return y.norm;
}

Var ResidualStream::normed(Ctx& ctx, const ParameterStore& store, const BlockNorm& norm) {
  const Var y = normed(ctx, store, static_cast<const LayerNorm&>(norm));
  return norm.canon ? canon(ctx, y, store.var(*norm.canon)) : y;
}

void ResidualStream::add(Affine branch) {
  WEFT_CHECK(!waiting_, "residual stream: a branch is added before the one ahead of it was read");
  waiting_ = std::move(branch);
}
}  // namespace weft
