// SPDX-License-Identifier: MIT
// The config: every key, in plain structs. fields.cpp says once what each key means: reading,
// writing, --set and configs/reference.yaml come from it.
// To pass a config on, declare `struct Config;` and leave this header out.
#pragma once

#include "kernels/dtype.h"
#include "kernels/layers/activation.h"
#include "src/patterns/spec.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft {
// The enumerations of a config. fields.cpp has the names under which files give them.
enum class WeightRule : uint8_t { variance, standard_deviation };
enum class PositionCode : uint8_t { learned, rotary };
enum class QkNorm : uint8_t { none, rms };
enum class Optimizer : uint8_t { adamw, muon };
enum class Schedule : uint8_t { cosine, linear, constant };
enum class Recompute : uint8_t { none, attention, block };

struct DataConfig {
  std::string path, mix;
  double mix_rate = 0.5;
  int64_t mix_items = 0, separator = -1;
  bool labels = false;
  int64_t classes = 10;
};

// Distribution augmentation (Jun et al. 2020, "Distribution Augmentation for Generative Modeling"):
// the model is told how images were transformed. Each kind is drawn uniformly; 0 changes nothing.
// See data/augment/.
struct AugmentConfig {
  bool rotation = false, color = false, transposition = false, reversal = false;
  int64_t jigsaw = 0, random_order = 0;
  std::vector<int64_t> random_order_seeds = {42, 314, 2718, 1618};
  int64_t randaugment = 0;
  double randaugment_magnitude = 2, randaugment_rate = 0.95;
  bool flip = false, conditional = true, permute_positions = true;
  double unaugmented_rate = 0;
};

struct InitConfig {
  double token_std = 0.1;      // token and start embeddings
  double position_std = 0.1;   // each position table
  double weight_gain = 0.125;  // g: weights have variance g / fan_in, or deviation g / sqrt(fan_in)
  WeightRule weight_rule = WeightRule::variance;
};

struct ModelConfig {
  std::string kind = "sparse_transformer";
  int64_t vocab = 256;
  int64_t context = 12288;
  int64_t layers = 12;
  int64_t width = 512;  // d
  int64_t heads = 8;
  // width of all queries (and of all keys) / d: 0.5 in the paper's image models
  double qk_ratio = 1.0;
  double mlp_ratio = 4.0;  // hidden width of the MLP / d: 2 in the paper's image models
  Activation activation = Activation::gelu;  // between the matrices of the MLP
  double dropout = 0.0;                      // at the end of each residual branch
  double embedding_dropout = 0.0;
  // logits from the token embedding instead of a zero-initialised output layer
  bool tied_output = false;
  bool final_norm = true;
  double norm_eps = 1e-5;
  bool previous_token = false;  // a position embeds the token before its own, too
  bool unet = false;            // blocks read the embedding and the outputs of mirrored blocks
  bool qk_learnt = false;       // with qk_norm: each head has a learned scale
  bool canon = false;           // norms see the three positions before, too
  PositionCode positions = PositionCode::learned;
  // the slowest pair of an axis turns by almost 1 / base a position
  double rotary_base = 10000;
  QkNorm qk_norm = QkNorm::none;  // of each query and key over the features of its head
  // outermost first: text {n / l, l}, {32, 32, 3}
  std::vector<int64_t> position_axes = {96, 128};
  std::vector<PatternSpec> attention = {PatternSpec{}};  // cycled over the layers
  InitConfig init;
};

struct TrainConfig {
  int64_t steps = 3000;  // updates
  // sequences of full context in one update; tokens a step = batch * context
  int64_t batch = 4;
  int64_t batch_tokens = 0;  // instead of batch: tokens a step; 0 in a config that was read
  int64_t accumulation = 1;  // micro-batches in one update (of each process); divides batch
  Optimizer optimizer = Optimizer::adamw;  // muon: of the matrices of the blocks
  double learning_rate = 1e-3;
  double final_learning_rate = 0.1;      // at the last step, as a share of learning_rate
  int64_t warmup = 200;                  // steps of linear warm-up
  Schedule schedule = Schedule::cosine;  // after the warm-up
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.01;
  double muon_learning_rate = 0.02;  // at its peak, on the schedule of learning_rate
  double muon_momentum = 0.95, muon_weight_decay = 0.01;
  double clip = 1.0;                      // global gradient norm; 0: off
  double ema_decay = 0.0;                 // 0: no moving average is kept
  Recompute recompute = Recompute::none;  // what the backward pass computes again
  // {step, context} pairs: from that step on sequences are this long; the tokens of a step stay the
  // same.
  std::vector<std::pair<int64_t, int64_t>> context_schedule;
  double loss_scale = 65536;         // f16: initial value
  int64_t loss_scale_window = 1000;  // f16: good steps before the scale is doubled
  bool graph = true;                 // capture the step as a CUDA graph
  DType reduce_dtype = DType::f32;   // several processes: type of the all-reduce, f32 or bf16
  int64_t bucket_mb = 25;            // several processes: MB in one all-reduce, at least
  // several processes: each keeps a part of the optimizer's state
  bool shard_optimizer = false;
  int64_t log_every = 10, eval_every = 200, save_every = 1000;
  int64_t eval_tokens = 0;  // at evaluations during training: 0 is the whole split
  int64_t keep = 2;         // numbered checkpoints kept besides latest.h5 and best.h5; 0: all
};

struct Config {
  std::string name = "run";
  uint64_t seed = 0;
  DType precision = DType::bf16;  // f32, f16 or bf16; a CPU computes in f32
  DataConfig data;
  AugmentConfig augment;
  ModelConfig model;
  TrainConfig train;
  // Not keys: the file this was read from, and the processes that train together, each on its share
  // of batch.
  std::string source;
  int64_t ranks = 1;
};
}  // namespace weft
