// SPDX-License-Identifier: MIT
// Layers: structs of parameter handles with a forward(). ParameterStore::add lists the parameters.
#pragma once

#include "kernels/sampling/decode_attention.h"
#include "kernels/sampling/decode_blocks.h"
#include "src/ops/dynamic_heads.h"
#include "src/parameters.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {
struct ModelConfig;

struct Linear {
  Param weight, bias;  // (out, in), (out)
  Linear(ParameterStore&, const std::string& name, int64_t in, int64_t out, double std,
         bool with_bias = true, ParamKind kind = ParamKind::compute);
  Var forward(Ctx&, const ParameterStore&, const Var& x) const;
  // The same with the bias left to the op that reads the result.
  Affine affine(Ctx&, const ParameterStore&, const Var& x) const;
  DecodeAffine decoding(const ParameterStore&) const;
};

struct LayerNorm {
  Param weight, bias;  // (C)
  double eps = 1e-5;
  LayerNorm(ParameterStore&, const std::string& name, int64_t size, double eps = 1e-5);
  Var forward(Ctx&, const ParameterStore&, const Var& x) const;
  // x + dropout(branch), and the norm of that.
  SumAndNorm forward(Ctx&, const ParameterStore&, const Var& x, const Affine& branch,
                     double dropout) const;
  DecodeNorm decoding(const ParameterStore&) const;
};

// The norm of a block, with model.canon as its last step.
struct BlockNorm : LayerNorm {
  std::optional<Param> canon;  // (4 C)
  BlockNorm(ParameterStore&, const std::string& name, const ModelConfig&);
};

// For sampling: x weight^T, x normalised first where there is a norm. A row's bits depend on no
// other row.
Tensor decode_linear(Ctx&, const ParameterStore&, const Tensor& x, const LayerNorm* norm,
                     const Tensor& weight);

// Tokens and positions, shifted by one: see kernels/layers/embedding.h.
struct Embedding {
  Param table, start;            // token_embedding (V, C); start (C), or (condition_rows, C)
  std::vector<Param> positions;  // position.a (position_axes[a], C)
  std::vector<int64_t> divisors;
  std::optional<Param> previous;  // previous_embedding (V, C), with model.previous_token
  Embedding(ParameterStore&, const ModelConfig&, int64_t condition_rows);
  Var forward(Ctx&, const ParameterStore&, const Sequences&) const;
  // The row whose number is at *position in the queue's memory: (B, 1, C).
  Tensor decode(Ctx&, const ParameterStore&, const Sequences&, const int32_t* position) const;

 private:
  EmbeddingTables tables(const ParameterStore&) const;
};

// Of rotary positions: (context + 1, Dqk / 2, 2), cos and sin of each place, computed in double.
// Pairs are dealt to the axes longer than 1, in order and as evenly as can be: the first ones get
// one more. Pair j of n of an axis turns by index * base^(-j / n), with the index as in Embedding;
// the first axis has no end.
Tensor rotary_table(Device&, const ModelConfig&, DType wide);

// Keys (B, R, Dqk) and values (B, R, Dv) of one layer: the rows of all heads, see CacheLayout.
struct KeyValueCache {
  Tensor keys, values;
};

// What decoding one position needs to know of a pattern, in the queue's memory: see
// AttentionDecode.
struct DecodeKeys {
  const int32_t *keys = nullptr, *key_start = nullptr;  // what each group reads
  // of these keys; null: not asked for
  const int32_t* key_positions = nullptr;
  const int32_t* row = nullptr;                                  // (H) where the new key is put
  const int32_t *group_of_head = nullptr, *first_row = nullptr;  // (H)
  int64_t longest = 0;                                           // keys that a head reads at most
};

struct Attention {
  AttentionShape shape;
  Linear qkv;                             // C -> q | k | v
  std::optional<Param> gain;              // (H) of queries, with model.qk_learnt
  std::unique_ptr<DynamicHeads> dynamic;  // null: there are none
  Linear proj;                            // H*Dv -> C
  Attention(ParameterStore&, const std::string& name, int64_t width, const DynamicLayer&,
            double std, double proj_std, ParamKind matrices, bool learned_gain);
  // q | k | v (B, T, columns) as projected -> as they are attended to, in place. `maps` get those
  // of dynamic heads.
  Var rotate(Ctx&, const ParameterStore&, const Var& packed, const QkOptions&, KeptMaps& maps,
             MapCache&) const;
  // recomputed: the backward pass keeps q, k and v alone.
  Affine attend(Ctx&, const ParameterStore&, const Var& packed, const KeptMaps&,
                bool recomputed) const;
};

struct Mlp {
  Linear up, down;
  Activation f;
  Mlp(ParameterStore&, const std::string& name, int64_t width, int64_t hidden, double up_std,
      double down_std, Activation, ParamKind matrices);
  Affine forward(Ctx&, const ParameterStore&, const Var& x) const;
};

// Of model.unet: what block `number` of `blocks` reads, x_weight x + start_weight start +
// skip_weight skip.
struct UnetMix {
  Param x_weight, start_weight;      // (C)
  std::optional<Param> skip_weight;  // (C), in the second half
  UnetMix(ParameterStore&, const std::string& name, const ModelConfig&, int64_t number);
  // start: the embedding; skips: outputs of the blocks of the first half, of which it takes one.
  Var forward(Ctx&, const ParameterStore&, const Var& x, const Var& start,
              std::vector<Var>& skips) const;
};

// One residual block (section 5.2): x += dropout(attention(norm(x))), then x +=
// dropout(mlp(norm(x))).
struct ResidualBlock {
  std::optional<UnetMix> mix;  // of all but the first with model.unet
  BlockNorm attention_norm;
  Attention attention;
  BlockNorm mlp_norm;
  Mlp mlp;
  ResidualBlock(ParameterStore&, const std::string& name, const ModelConfig&, ParamKind matrices,
                const DynamicLayer&);
  // For one position: its key and value go into the cache, where it attends to `keys`.
  DecodeBlock decoding(const ParameterStore&, const KeyValueCache&, const DecodeKeys& keys) const;
};

// x (B, 1, C), the position at *position, through blocks of one shape. first_key: as in
// AttentionDecode.
Tensor decode_blocks(Ctx&, const Tensor& x, std::vector<DecodeBlock> blocks, const AttentionShape&,
                     Activation, const QkOptions&, const int32_t* position, const Tensor& first_key,
                     const Tensor& prepared);

// The blocks' weights in the order of a kernel for few texts, for batches of `batch`. Null where no
// kernel takes `texts` at a time.
Tensor prepare_blocks(Device&, std::vector<DecodeBlock> blocks, const AttentionShape&,
                      int64_t batch, int64_t texts);

// The residual stream x of a pre-norm model, to which blocks add their branches. A branch waits
// until x is read: a norm adds it in the same pass over memory (kernels/layers/layernorm.h).
class ResidualStream {
 public:
  ResidualStream(Var x, double dropout)
      : x_(std::move(x)),
        dropout_(dropout) {}

  Var value(Ctx&);                                                 // x
  Var normed(Ctx&, const ParameterStore&, const LayerNorm& norm);  // norm(x)
  Var normed(Ctx&, const ParameterStore&, const BlockNorm& norm);
  void add(Affine branch);  // x += dropout(branch)

 private:
  Var x_;
  std::optional<Affine> waiting_;
  double dropout_;
};
}  // namespace weft
