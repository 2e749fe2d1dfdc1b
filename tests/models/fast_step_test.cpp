// SPDX-License-Identifier: MIT
// The step as it is trained, every fused and 16-bit form of it, against the same step in f32 with a
// launch for each equation: losses over 200 updates. Single kernels are held to f64 elsewhere; this
// is about their sum.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>
#ifdef WEFT_CUDA
#include "models/layers.h"
#include "models/model.h"
#include "src/attention_maps.h"
#include "src/device.h"
#include "src/optimizer/optimizer.h"
#include "tests/models/model_testing.h"

#include <cmath>

namespace weft {
namespace {
constexpr int kSteps = 200;
constexpr int64_t kBatch = 4;

// Sizes that the Hopper forms and the products with fused ends take; all kinds of patterns.
Config fast_config() {
  Config c;
  c.model.context = 1024;
  c.model.layers = 4;
  c.model.width = 512;
  c.model.heads = 8;
  c.model.dropout = 0.1;
  c.model.position_axes = {8, 128};
  c.model.attention = {
      {"fixed", 128, 32, 4}, {"local", 128, 1, 1}, {"strided", 128, 1, 1}, {"all", 1, 1, 1}};
  c.train.steps = kSteps;
  c.train.batch = kBatch;
  c.train.warmup = 50;
  c.train.learning_rate = 3e-4;
  return c;
}

// Section 5 of arXiv 1904.10509 with the parameters of SparseTransformer, unfused: biases inside of
// products, sums and norms apart, attention in its `simple` form.
class PlainTransformer {
 public:
  PlainTransformer(const Config& config, const ParameterStore& store, Device& device)
      : device_(device),
        config_(config.model),
        store_(store),
        patterns_(layer_patterns(config_)),
        maps_(device, static_cast<int>(config_.heads), attention_shape(config_).head_size()) {}

  Var token_losses(Ctx& ctx, const Tensor& tokens) {
    std::vector<PositionTable> learned;
    QkOptions qk;
    if (config_.positions == PositionCode::learned) {
      learned = {{var("position.0"), config_.position_axes[1]}, {var("position.1"), 1}};
    } else {
      if (!table_) table_ = rotary_table(device_, config_, DType::f32);
      qk = {.norm_eps = config_.norm_eps, .table = table_};
    }
    Var x = embedding(ctx, tokens, {var("token_embedding"), var("start"), learned});
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      const std::string block = str("blocks.", i);
      const AttentionMaps& maps = maps_.get(*patterns_[i], config_.context).maps();
      const Var qkv =
          affine(ctx, norm(ctx, x, block + ".attention_norm"), block + ".attention.qkv");
      const Var attended =
          sparse_attention(ctx, norm_and_rotate(ctx, qkv, attention_shape(config_), qk),
                           attention_shape(config_), maps, {.form = AttentionForm::simple});
      x = residual_dropout(ctx, x, affine(ctx, attended, block + ".attention.proj"),
                           config_.dropout);
      const Affine up = affine(ctx, norm(ctx, x, block + ".mlp_norm"), block + ".mlp.up");
      const Var hidden = activation(ctx, up, config_.activation);
      x = residual_dropout(ctx, x, affine(ctx, hidden, block + ".mlp.down"), config_.dropout);
    }
    return cross_entropy(ctx, linear(ctx, norm(ctx, x, "final_norm"), var("output.weight"), Var{}),
                         tokens);
  }

 private:
  Var var(const std::string& name) const {
    for (std::size_t i = 0; i < store_.params().size(); ++i)
      if (store_.params()[i].name == name) return store_.var({static_cast<int32_t>(i)});
    fail(str("no parameter ", name));
  }

  Var affine(Ctx& ctx, const Var& x, const std::string& name) const {
    return linear(ctx, x, var(name + ".weight"), var(name + ".bias"));
  }

  Var norm(Ctx& ctx, const Var& x, const std::string& name) const {
    return layernorm(ctx, x, var(name + ".weight"), var(name + ".bias"), config_.norm_eps);
  }

  Device& device_;
  ModelConfig config_;
  Tensor table_;
  const ParameterStore& store_;
  std::vector<std::shared_ptr<const AttentionPattern>> patterns_;
  MapCache maps_;
};

// A chain in which each token leaves eight likely ones.
std::vector<int32_t> tokens_of(int step) {
  std::mt19937 random(static_cast<unsigned>(step) + 1);
  std::vector<int32_t> tokens(static_cast<std::size_t>(kBatch * fast_config().model.context));
  uint32_t token = 0;
  for (int32_t& t : tokens) {
    token = (5 * token + 17 + random() % 8 * (random() % 8)) % 256;
    t = static_cast<int32_t>(token);
  }
  return tokens;
}

std::vector<double> losses(const Config& config, DType compute, bool plain) {
  Engine engine("cuda");
  ParameterStore store;
  const auto model = make_model(config, store, *engine.device);
  store.allocate(*engine.device, compute, 4, true, false);
  PlainTransformer unfused(config, store, *engine.device);
  const Tensor tokens(*engine.device->pool, {kBatch, config.model.context}, DType::i32);
  GraphedStep graphed(*engine.device, !plain);
  const float scale = compute == DType::f16 ? 4096.0f : 1.0f;
  std::vector<double> result;
  for (int step = 0; step < kSteps; ++step) {
    engine.device->upload(tokens, tokens_of(step).data());
    engine.set({
        .seed = 3,
        .draw = static_cast<uint64_t>(step),
        .learning_rate = static_cast<float>(learning_rate(config.train, step)),
        .beta1_correction = static_cast<float>(1 - std::pow(config.train.beta1, step + 1)),
        .beta2_correction = static_cast<float>(1 - std::pow(config.train.beta2, step + 1)),
        .loss_gradient = scale,
        .gradient_scale = 1 / scale,
    });
    graphed.run([&] {
      Tape tape;
      Ctx ctx = engine.ctx(&tape, true);
      store.begin_step();
      backward(ctx, mean(ctx, plain ? unfused.token_losses(ctx, tokens)
                                    : model->token_losses(ctx, tokens)));
      store.finish_gradients(ctx);
      update_parameters(ctx, store, config.train);
    });
    result.push_back(engine.results().loss);
  }
  return result;
}

void check_losses(const Config& config) {
  const std::vector<double> want = losses(config, DType::f32, true);
  EXPECT_LT(want.back(), 0.8 * want.front());
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<double> got = losses(config, compute, false);
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double error = std::abs(got[i] / want[i] - 1);
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
    }
    EXPECT_LE(worst, 1e-3) << name_of(compute);
    std::printf("%s: losses differ by up to %.2e of themselves; %.4f at the end\n",
                name_of(compute), worst, got.back());
  }
}

TEST(CudaFastStep, LossesAreThoseOfTheUnfusedStepInF32) { check_losses(fast_config()); }

TEST(CudaFastStep, LossesOfTheModernModelAreThoseOfTheUnfusedStepInF32) {
  Config config = fast_config();
  config.model.activation = Activation::relu2;
  config.model.positions = PositionCode::rotary;
  config.model.qk_norm = QkNorm::rms;
  config.model.position_axes = {config.model.context};
  check_losses(config);
}
}  // namespace
}  // namespace weft
#endif
