// SPDX-License-Identifier: MIT
// The Sparse Transformer (Child et al. 2019, arXiv 1904.10509, section 5): pre-norm residual blocks
// over sparse attention, predicting each token from those before it.
#pragma once

#include "models/layers.h"
#include "models/model.h"
#include "src/attention_maps.h"
#include "src/config/conditions.h"
#include "src/config/config.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace weft {
class SparseTransformer : public Model {
 public:
  SparseTransformer(const Config&, ParameterStore&, Device&);

  Var token_losses(Ctx&, const Sequences&) override;
  Tensor logits(Ctx&, const Sequences&) override;
  // models/decoding.cpp
  std::unique_ptr<DecodeCache> make_cache(Device&, int64_t batch, int64_t length,
                                          int64_t texts) override;
  Tensor decode_step(Ctx&, DecodeCache&, const Sequences&) override;
  void read_prompt(Ctx&, DecodeCache&, const Sequences& text, int64_t count, int64_t first,
                   int64_t texts) override;
  SeenKeys seen(Ctx&, const Sequences& text, std::size_t layer, int head) override;

  const std::vector<std::shared_ptr<const AttentionPattern>>& patterns() const override {
    return patterns_;
  }

 private:
  // Called with q, k and v of each layer as they are projected, without maps, then as they are
  // attended to: the last layer computes nothing more.
  using OnLayer = std::function<void(std::size_t layer, const Tensor& packed, const KeptMaps*)>;
  // (B, T, C), behind all blocks
  ResidualStream hidden(Ctx&, const Sequences&, const OnLayer& = {});
  void run_block(Ctx&, std::size_t layer, ResidualStream& x, KeptMaps, const QkOptions&,
                 const OnLayer&);
  Var output(Ctx&, ResidualStream x) const;  // final norm and output layer: (..., C) -> (..., V)
  void check_sequences(const Sequences&) const;
  QkOptions of_qk(const Sequences&);

  Device& device_;
  ModelConfig config_;
  std::vector<Condition> conditions_;
  int64_t separator_;  // data.separator
  bool recompute_blocks_, recompute_attention_;
  ParameterStore& store_;
  Embedding embedding_;
  std::vector<ResidualBlock> blocks_;
  std::unique_ptr<LayerNorm> final_norm_;
  // null: tied to the token embedding
  std::unique_ptr<Linear> output_;
  std::vector<std::shared_ptr<const AttentionPattern>> patterns_;  // one for each layer
  MapCache maps_;
  Tensor rotary_table_;
};
}  // namespace weft
