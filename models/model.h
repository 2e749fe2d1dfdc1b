// SPDX-License-Identifier: MIT
// The interface of a model to training, sampling and evaluation, and sizes that follow from a
// config.
#pragma once

#include "src/ops/dynamic_heads.h"
#include "src/parameters.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace weft {
struct Config;
struct ModelConfig;

// The caches of the layers with one pattern, for a batch of texts. dense_*: if every head kept
// every position.
struct CacheUse {
  std::shared_ptr<const AttentionPattern> pattern;
  std::vector<int64_t> layers;
  std::vector<int64_t> rows;  // of one layer and text, by head
  int64_t dense_rows = 0;     // of a head: the positions
  std::size_t bytes = 0, dense_bytes = 0;
};

// Keys and values of the positions seen so far, for sampling. Made by Model::make_cache.
struct DecodeCache {
  virtual ~DecodeCache() = default;
  // Sends the lists of a position to the device, for the next decode_step(). Does not wait.
  virtual void seek(int64_t position) = 0;
  virtual const int32_t* position() const = 0;  // the one sought last, in the queue's memory
  virtual std::size_t bytes() const = 0;        // of everything it holds for its texts
  virtual std::vector<CacheUse> use() const = 0;
  // Of weights in the order of a kernel for few texts; 0: another kernel decodes.
  virtual std::size_t prepared_bytes() const = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  // (B, T) tokens with T <= context -> (B, T) losses, wide(T): nats of each token given those
  // before it. A model with conditions (src/config/conditions.h) needs them for every sequence.
  virtual Var token_losses(Ctx&, const Sequences&) = 0;
  // (B, T) tokens -> (B, T, V): row t predicts token t from tokens 0 .. t - 1.
  virtual Tensor logits(Ctx&, const Sequences&) = 0;

  // Sampling. make_cache: a cache for B sequences of at most `length` tokens. decode_step: logits
  // (B, V) of the token at the position sought last, from the tokens (B, length) before it.
  // Positions are sought in order, and weights stay as they were when the cache was made. The
  // result is that row of logits() up to rounding. Its bits do not depend on other sequences, nor
  // on B. Every position has the same launches, so one graph serves all.
  // `texts`: how many the caller decodes in all, in batches of any size; 0: not known. A few texts
  // may have a faster kernel, which rounds differently; their batches then all take it.
  virtual std::unique_ptr<DecodeCache> make_cache(Device&, int64_t batch, int64_t length,
                                                  int64_t texts = 0) = 0;
  virtual Tensor decode_step(Ctx&, DecodeCache&, const Sequences&) = 0;

  Tensor decode(Ctx& ctx, DecodeCache& cache, const Sequences& s, int64_t position) {
    cache.seek(position);
    return decode_step(ctx, cache, s);
  }

  // One pass over the first `count` positions of a text (1, T), T >= count, which fills the caches
  // of the sequences first .. first + texts - 1 as decode() of each position would, up to rounding.
  // decode(count) is next. The bits depend on T and the text alone.
  virtual void read_prompt(Ctx&, DecodeCache&, const Sequences& text, int64_t count, int64_t first,
                           int64_t texts) = 0;

  // The keys that a head of a layer sees in one text; on a CPU only.
  virtual SeenKeys seen(Ctx&, const Sequences& text, std::size_t layer, int head) = 0;

  // The pattern of each layer.
  virtual const std::vector<std::shared_ptr<const AttentionPattern>>& patterns() const = 0;
};

struct ModelKind {
  const char* kind;
  std::unique_ptr<Model> (*make)(const Config&, ParameterStore&, Device&);
};

const std::vector<ModelKind>& models();
// Adds the model's parameters to the store (call store.allocate afterwards).
std::unique_ptr<Model> make_model(const Config&, ParameterStore&, Device&);

// ---- sizes that follow from a ModelConfig

// Dqk = qk_ratio * width / heads, Dv = width / heads
AttentionShape attention_shape(const ModelConfig&);
int64_t mlp_width(const ModelConfig&);  // mlp_ratio * width
// The pattern of each layer: the configured ones, cycled. Layers with equal specs share one object.
std::vector<std::shared_ptr<const AttentionPattern>> layer_patterns(const ModelConfig&);

struct LayerGroup {  // layers with one pattern
  std::shared_ptr<const AttentionPattern> pattern;
  std::vector<int64_t> members;
};

// In the order of their first layers; equal names are one pattern.
std::vector<LayerGroup> layer_groups(
    const std::vector<std::shared_ptr<const AttentionPattern>>& of_layer);

DynamicLayer dynamic_layer(const Config&, const AttentionPattern&, std::size_t layer);

// FLOPs a token of one forward and backward pass, from the pairs that are needed; recompute is not
// counted.
double flops_per_token(const ModelConfig&, int64_t context);
// of it between the projections
double attention_flops_per_token(const ModelConfig&, int64_t context);

// Bytes that training needs on the device, by kind, before anything is allocated.
struct MemoryPlan {
  std::size_t weights = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0;

  std::size_t total() const { return weights + gradients + optimizer + activations + workspace; }
};

MemoryPlan plan_memory(const Config&, int64_t micro_batch, int64_t context, bool training);
}  // namespace weft
