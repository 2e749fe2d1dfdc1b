// SPDX-License-Identifier: MIT
// A small model of any pattern, with weights that are not the initial ones (the output layer starts
// at zero and would hide the rest).
#pragma once

#include "models/model.h"
#include "src/config/config.h"
#include "src/config/write_config.h"
#include "src/ops.h"
#include "tests/src/engine_testing.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft {
inline const std::vector<PatternSpec> kPatternSpecs = {
    {"all", 1, 1, 1}, {"local", 5, 1, 1}, {"strided", 5, 1, 1}, {"fixed", 6, 2, 2}};

inline constexpr Recompute kEveryRecompute[] = {Recompute::none, Recompute::attention,
                                                Recompute::block};

inline std::string text_of(Recompute recompute) {
  Config c;
  c.train.recompute = recompute;
  return value_text(c, "train.recompute");
}

inline Config small_config(const PatternSpec& pattern) {
  Config c;
  c.precision = DType::f32;
  c.model.vocab = 7;
  c.model.context = 18;
  c.model.layers = 2;
  c.model.width = 16;
  c.model.heads = 2;
  c.model.mlp_ratio = 2;
  c.model.position_axes = {3, 6};
  c.model.attention = {pattern};
  return c;
}

// The same with QK-norm and rotary positions, along one axis or those of an image.
inline Config rotary_config(const PatternSpec& pattern, std::vector<int64_t> axes = {18}) {
  Config c = small_config(pattern);
  c.model.positions = PositionCode::rotary;
  c.model.rotary_base = 30;
  c.model.qk_norm = QkNorm::rms;
  c.model.previous_token = true;
  c.model.position_axes = std::move(axes);
  return c;
}

struct SmallModel {
  Engine engine;
  Config config;
  ParameterStore store;
  std::unique_ptr<Model> model;

  explicit SmallModel(const Config& c, DType compute = DType::f32,
                      const std::string& device = "cpu")
      : engine(device),
        config(c),
        model(make_model(c, store, *engine.device)) {
    store.allocate(*engine.device, compute, 1, true, false);
    Ctx ctx = engine.ctx();
    for (const ParamInfo& p : store.params()) {
      const double offset = p.kind == ParamKind::wide && p.name.ends_with("weight") ? 1 : 0;
      std::vector<double> values = normals(p.size, static_cast<unsigned>(p.offset) + 9, 0.3);
      for (double& v : values) v += offset;
      engine.upload(store.master().slice(p.offset, p.shape), values);
    }
    store.refresh_compute(ctx);
  }

  Tensor tokens(int64_t batch, int64_t length, unsigned seed = 3) {
    std::mt19937 random(seed);
    std::vector<double> values(static_cast<std::size_t>(batch * length));
    for (double& v : values)
      v = static_cast<double>(random() % static_cast<unsigned>(config.model.vocab));
    return engine.tensor({batch, length}, values, DType::i32);
  }

  double loss(const Sequences& sequences, bool training = false) {
    Ctx ctx = engine.ctx(nullptr, training);
    return engine.host(mean(ctx, model->token_losses(ctx, sequences)).value)[0];
  }

  // The loss; gradients are in the store.
  double differentiate(const Sequences& sequences, bool training = false) {
    Tape tape;
    Ctx ctx = engine.ctx(&tape, training);
    store.begin_step();
    const Var objective = mean(ctx, model->token_losses(ctx, sequences));
    backward(ctx, objective);
    store.finish_gradients(ctx);
    return engine.host(objective.value)[0];
  }
};

// Texts, decoded from the first position on, or behind a prompt that one pass has read: at each
// position, the logits are those of the forward pass over the whole text.
inline void check_decoding(SmallModel& small, const Sequences& s, bool batch_invariant = true) {
  const int64_t batch = s.tokens.shape()[0], length = s.tokens.shape()[1],
                vocab = small.config.model.vocab;
  SCOPED_TRACE(str("batch ", batch, ", length ", length));
  Ctx ctx = small.engine.ctx();
  ctx.batch_invariant = batch_invariant;
  const std::vector<double> want = small.engine.host(small.model->logits(ctx, s));
  const int64_t half = (length + 1) / 2, most = length - 1;
  for (const int64_t given : {int64_t{0}, int64_t{1}, half, most}) {
    if (given > most) continue;
    SCOPED_TRACE(str("prompt of ", given));
    const auto cache = small.model->make_cache(*small.engine.device, batch, length);
    for (int64_t b = 0; b < batch && given > 0; ++b) {
      const auto row = [&](const Tensor& t) {
        return t ? t.slice(b * t.view().cols(), {1, t.view().cols()}) : Tensor{};
      };
      small.model->read_prompt(
          ctx, *cache, {row(s.tokens), {}, row(s.positions), row(s.conditions)}, given, b, 1);
    }
    for (int64_t t = given; t < length; ++t) {
      const Tensor logits = small.model->decode(ctx, *cache, s, t);
      ASSERT_EQ(logits.shape(), (Shape{batch, vocab}));
      std::vector<double> expected;
      for (int64_t b = 0; b < batch; ++b) {
        const auto first = want.begin() + (b * length + t) * vocab;
        expected.insert(expected.end(), first, first + vocab);
      }
      expect_near(small.engine.host(logits), expected, 1e-5, str("logits at position ", t));
      if (testing::Test::HasFailure()) return;
    }
  }
}

inline void check_decoding(SmallModel& small, int64_t batch, int64_t length) {
  check_decoding(small, small.tokens(batch, length, static_cast<unsigned>(length)));
}

// Finite differences of `step` of some weights of each tensor, in f64, over two sequences of n
// tokens.
inline void check_model_gradients(const Config& config, int64_t n, bool training,
                                  double step = 1e-5, double bound = 1e-6) {
  SmallModel small(config, DType::f64);
  small.engine.set({.seed = 21, .draw = 2});
  const Tensor tokens = small.tokens(2, n);
  small.differentiate(tokens, training);
  const std::vector<double> gradients = small.engine.host(small.store.gradients());
  auto* master = small.store.master().view().as<double>();
  for (const ParamInfo& p : small.store.params()) {
    // moved by k-means, not by the loss
    if (p.name.find("centroids") != std::string::npos) continue;
    std::vector<double> got, want;
    for (int64_t i = p.offset; i < p.offset + p.size; i += std::max<int64_t>(1, p.size / 3)) {
      const double x0 = master[i];
      master[i] = x0 + step;
      const double up = small.loss(tokens, training);
      master[i] = x0 - step;
      const double down = small.loss(tokens, training);
      master[i] = x0;
      want.push_back((up - down) / (2 * step));
      got.push_back(gradients[static_cast<std::size_t>(i)]);
    }
    expect_near(got, want, bound, p.name);
  }
}

// Of activations: what the pool saw, less what was planned.
inline double check_plan(const Config& config, int64_t batch, bool training) {
  const int64_t context = config.model.context;
  const MemoryPlan plan = plan_memory(config, batch, context, training);
  const auto device = make_device("cpu");
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, DType::f32, 0, training, config.train.ema_decay > 0);
  const auto block_bytes = [&](int64_t blocks) {
    return static_cast<double>(blocks * store.size() * 4);
  };
  EXPECT_EQ(static_cast<double>(plan.weights), block_bytes(1));
  EXPECT_EQ(static_cast<double>(plan.gradients), block_bytes(training ? 1 : 0));
  EXPECT_EQ(static_cast<double>(plan.optimizer),
            block_bytes((training ? 2 : 0) + (config.train.ema_decay > 0 ? 1 : 0)));

  MemoryPool& pool = *device->pool;
  const std::size_t before = pool.in_use();
  const Tensor tokens(pool, {batch, context}, DType::i32),
      step(pool, {sizeof(StepScalars)}, DType::u8);
  const StepScalars scalars;
  device->zero(tokens);
  device->upload(step, &scalars);
  Tape tape;
  Ctx ctx;
  ctx.queue = &device->queue;
  ctx.pool = &pool;
  ctx.step = static_cast<StepScalars*>(step.view().data);
  ctx.training = training;
  ctx.tape = training ? &tape : nullptr;
  const Var loss = mean(ctx, model->token_losses(ctx, tokens));
  if (training) backward(ctx, loss);
  const auto used = static_cast<double>(pool.peak() - before);
  EXPECT_NEAR(static_cast<double>(plan.activations), used, 0.15 * used) << pool.table();
  EXPECT_EQ(plan.total(),
            plan.weights + plan.gradients + plan.optimizer + plan.activations + plan.workspace);
  return used - static_cast<double>(plan.activations);
}
}  // namespace weft
