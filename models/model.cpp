// SPDX-License-Identifier: MIT
// The table of models, and what one costs: operations a token, bytes on the device.
#include "models/model.h"

#include "kernels/attention/documents.h"
#include "models/sparse_transformer.h"
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft {
const std::vector<ModelKind>& models() {
  static const std::vector<ModelKind> table = {
      {"sparse_transformer",
       [](const Config& config, ParameterStore& store, Device& device) -> std::unique_ptr<Model> {
         return std::make_unique<SparseTransformer>(config, store, device);
       }}};
  return table;
}

std::unique_ptr<Model> make_model(const Config& config, ParameterStore& store, Device& device) {
  for (const ModelKind& model : models())
    if (config.model.kind == model.kind) return model.make(config, store, device);
  fail("model.kind '", config.model.kind, "': expected one of ",
       joined(models(), ", ", &ModelKind::kind));
}

AttentionShape attention_shape(const ModelConfig& m) {
  const int64_t qk = std::llround(m.qk_ratio * static_cast<double>(m.width));
  WEFT_CHECK(m.heads > 0 && m.width % m.heads == 0 && qk > 0 && qk % m.heads == 0,
             "model.heads = ", m.heads, " must divide model.width = ", m.width,
             " and qk_ratio * width = ", qk);
  return {m.heads, qk / m.heads, m.width / m.heads, m.qk_gain};
}

int64_t mlp_width(const ModelConfig& m) {
  return std::llround(m.mlp_ratio * static_cast<double>(m.width));
}

std::vector<std::shared_ptr<const AttentionPattern>> layer_patterns(const ModelConfig& m) {
  WEFT_CHECK(!m.attention.empty(), "model.attention must name at least one pattern");
  const auto count = static_cast<std::size_t>(m.layers), cycle = m.attention.size();
  std::map<std::string, std::shared_ptr<const AttentionPattern>> known;  // by name
  std::vector<std::shared_ptr<const AttentionPattern>> of_layer;
  for (std::size_t layer = 0; layer < count; ++layer) {
    if (layer >= cycle) {
      of_layer.push_back(of_layer[layer - cycle]);
      continue;
    }
    std::shared_ptr<const AttentionPattern> fresh =
        make_pattern(m.attention[layer], static_cast<int>(m.heads));
    of_layer.push_back(known.try_emplace(fresh->name(), fresh).first->second);
  }
  return of_layer;
}

std::vector<LayerGroup> layer_groups(
    const std::vector<std::shared_ptr<const AttentionPattern>>& of_layer) {
  std::vector<LayerGroup> groups;
  std::map<std::string, std::size_t> number;  // of a name
  for (std::size_t layer = 0; layer < of_layer.size(); ++layer) {
    const auto [group, is_new] = number.try_emplace(of_layer[layer]->name(), groups.size());
    if (is_new) groups.push_back({of_layer[layer], {}});
    groups[group->second].members.push_back(static_cast<int64_t>(layer));
  }
  return groups;
}

DynamicLayer dynamic_layer(const Config& config, const AttentionPattern& pattern,
                           std::size_t layer) {
  const ModelConfig& m = config.model;
  return {.pattern = &pattern,
          .shape = attention_shape(m),
          .context = m.context,
          .seed = config.seed,
          .number = static_cast<uint32_t>(layer),
          .normed = m.qk_norm == QkNorm::rms};
}

namespace {
// Attended pairs of all heads of a layer.
double pairs_of_layer(const AttentionPattern& pattern, int heads, int64_t context) {
  std::vector<int64_t> pairs(pattern.groups(heads), -1);
  double sum = 0;
  for (int head = 0; head < heads; ++head) {
    int64_t& count = pairs[pattern.group(head)];
    if (count < 0) count = needed_pairs(pattern, head, context);
    sum += static_cast<double>(count);
  }
  return sum;
}

// Bytes of one token's activations in one residual block.
struct BlockBytes {
  int64_t stream;  // one tensor of the residual stream (C)
  int64_t qkv, attended, hidden;
  int64_t norm_rows, attention_rows;  // mean and rstd; log-sum-exp: in the wide type
  int64_t qk_rows;                    // with QK-norm: rstd of queries and keys

  BlockBytes(const ModelConfig& m, DType compute) {
    const AttentionShape shape = attention_shape(m);
    const int64_t element = size_of(compute), wide_element = size_of(wide(compute));
    stream = m.width * element;
    qkv = shape.columns() * element;
    attended = shape.heads * shape.v_size * element;
    hidden = mlp_width(m) * element;
    norm_rows = 2 * wide_element;
    attention_rows = m.heads * wide_element;
    qk_rows = m.qk_norm == QkNorm::rms ? 2 * m.heads * wide_element : 0;
  }

  // What ops.cpp keeps: qkv, attended, x after attention, norm, up, x after the MLP. Attention's
  // norm is recomputed from x, but that of the first x on a tape: first_norm().
  int64_t kept() const {
    return 3 * stream + qkv + attended + hidden + 2 * norm_rows + attention_rows + qk_rows;
  }

  int64_t first_norm() const { return stream; }

  // Of these, what a recomputed attention does not keep.
  int64_t recomputed_attention() const { return attended + attention_rows; }

  // On top of kept() while the block is differentiated; its output is gone by then. The MLP's
  // backward holds three gradients at its widest point and is gone at the attention, which
  // recomputes `recomputed` bytes.
  int64_t backward(int64_t recomputed) const {
    const int64_t in_mlp = 2 * stream + hidden;
    const int64_t in_attention =
        stream + attended + qkv + attention_rows + recomputed - (2 * stream + hidden + norm_rows);
    return std::max(in_mlp, in_attention) - stream;
  }

  // At the widest point of a forward pass that keeps nothing: in the MLP or in the attention.
  int64_t forward_only() const {
    return std::max(3 * stream + hidden, 2 * stream + qkv + attended + attention_rows);
  }
};

int64_t activation_bytes_of_token(const Config& config, DType compute, bool training) {
  const ModelConfig& m = config.model;
  const BlockBytes block(m, compute);
  const int64_t wide_element = size_of(wide(compute)), logits = m.vocab * size_of(compute);
  const int64_t norm = m.final_norm ? block.stream + block.norm_rows : 0;
  const int64_t losses = 2 * wide_element;  // loss and log-sum-exp
  if (!training) return std::max(block.forward_only(), block.stream + norm + logits + losses);
  const bool recompute = config.train.recompute == Recompute::block;
  const int64_t dropped =
      config.train.recompute == Recompute::attention ? block.recomputed_attention() : 0;
  const int64_t between = block.stream * (m.layers + 1);
  const int64_t kept =
      recompute ? between : block.stream + block.first_norm() + m.layers * (block.kept() - dropped);
  const int64_t at_output = kept + norm + 2 * logits + losses + wide_element;
  const int64_t in_block = kept + (recompute ? block.kept() + block.first_norm() : 0) +
                           block.backward(dropped) + wide_element;
  return std::max(at_output, in_block);
}
}  // namespace

double attention_flops_per_token(const ModelConfig& m, int64_t context) {
  const AttentionShape shape = attention_shape(m);
  std::map<const AttentionPattern*, double> pairs;
  double multiply_adds = 0;
  for (const auto& pattern : layer_patterns(m)) {
    const auto [entry, is_new] = pairs.try_emplace(pattern.get(), 0.0);
    if (is_new) entry->second = pairs_of_layer(*pattern, static_cast<int>(m.heads), context);
    multiply_adds += entry->second * static_cast<double>(shape.qk_size + shape.v_size) /
                     static_cast<double>(context);
  }
  return 3 * 2 * multiply_adds;
}

double flops_per_token(const ModelConfig& m, int64_t context) {
  const AttentionShape shape = attention_shape(m);
  const auto width = static_cast<double>(m.width);
  const double matrices =
      width * static_cast<double>(shape.columns() + shape.heads * shape.v_size + 2 * mlp_width(m));
  const double multiply_adds =
      static_cast<double>(m.layers) * matrices + width * static_cast<double>(m.vocab);
  return 3 * 2 * multiply_adds + attention_flops_per_token(m, context);
}

// Of the maps of dynamic heads: of each layer where all are kept, else of the largest.
int64_t dynamic_bytes(const Config& config, int64_t batch, int64_t context, bool training) {
  int64_t sum = 0, largest = 0;
  ParameterStore store;
  const auto patterns = layer_patterns(config.model);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const auto heads = make_dynamic_heads(store, str(i), dynamic_layer(config, *patterns[i], i));
    const int64_t bytes = heads ? heads->bytes(batch, context, training) : 0;
    sum += bytes, largest = std::max(largest, bytes);
  }
  return training && config.train.recompute != Recompute::block ? sum : largest;
}

// Of each sequence's own maps, with data.separator.
int64_t document_bytes(const Config& config, int64_t batch, int64_t context) {
  int64_t numbers = 0;
  for (const LayerGroup& group : layer_groups(layer_patterns(config.model))) {
    if (config.data.separator < 0) break;
    const PackedMaps maps(*group.pattern, static_cast<int>(config.model.heads), context,
                          attention_shape(config.model).head_size());
    numbers += SegmentMaps::table_size(maps.write(nullptr, nullptr), batch, context);
  }
  return numbers * int64_t{sizeof(int32_t)};
}

MemoryPlan plan_memory(const Config& config, int64_t micro_batch, int64_t context, bool training) {
  const DType compute = config.precision;
  const auto device = make_device("cpu");  // listing parameters takes no memory
  ParameterStore store;
  make_model(config, store, *device);
  int64_t elements = 0, own = 0;  // own: those that this process updates
  for (const ParamInfo& p : store.params()) {
    elements += p.size;
    own += config.train.shard_optimizer && p.decay ? p.size / config.ranks : p.size;
  }

  const int64_t wide_size = size_of(wide(compute)), master = elements * wide_size;
  const int64_t optimizer =
      own * wide_size * ((config.train.ema_decay > 0 ? 1 : 0) + (training ? 2 : 0)) +
      (training && config.train.optimizer != Optimizer::adamw
           ? matrix_optimizer(config.train).bytes(config, store.params())
           : 0);
  const int64_t angles =
      config.model.positions == PositionCode::rotary
          ? (config.model.context + 1) * attention_shape(config.model).qk_size * wide_size
          : 0;
  const int64_t activations =
      micro_batch * context * activation_bytes_of_token(config, compute, training) + angles +
      document_bytes(config, micro_batch, context) +
      dynamic_bytes(config, micro_batch, context, training);
  const auto bytes = [](int64_t n) { return static_cast<std::size_t>(n); };
  const bool own_master = compute != wide(compute);
  return {
      .weights = bytes(elements * size_of(compute) + (own_master ? own * wide_size : 0)),
      .gradients = bytes(training ? master : 0),
      .optimizer = bytes(optimizer),
      .activations = bytes(activations),
      .workspace = kWorkspaceBytes,
  };
}
}  // namespace weft
