// SPDX-License-Identifier: MIT
// Whole steps: graphs against plain calls, CPU against CUDA, a loss that falls.
#include "kernels/layers/pointwise.h"
#include "src/config/config.h"
#include "src/device.h"
#include "src/optimizer/optimizer.h"
#include "tests/models/model_testing.h"
#include "tests/src/gate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
struct Training {
  std::vector<double> losses, weights;
  bool replayed = false;
};

struct Options {
  std::string device = "cpu";
  DType compute = DType::f32;
  bool graph = false;
  // other work and tensors between the steps, as evaluation during training does
  bool disturb = false;
  bool same_batch = false;
  int steps = 20;
};

Training train(const Config& config, const Options& options) {
  Engine engine(options.device);
  ParameterStore store;
  const auto model = make_model(config, store, *engine.device);
  store.allocate(*engine.device, options.compute, 4, true, config.train.ema_decay > 0);
  const int64_t batch = config.train.batch, context = config.model.context;
  const Tensor tokens(*engine.device->pool, {batch, context}, DType::i32);
  const Tensor other = engine.tensor(
      {1, context}, std::vector<double>(static_cast<std::size_t>(context), 1), DType::i32);
  GraphedStep graphed(*engine.device, options.graph);
  std::vector<Tensor> kept;
  std::vector<std::vector<double>> kept_values;
  Training run;
  std::mt19937 random(8);
  std::vector<int32_t> values(static_cast<std::size_t>(batch * context));
  for (int step = 0; step < options.steps; ++step) {
    if (step == 0 || !options.same_batch) {
      for (auto& v : values)
        v = static_cast<int32_t>(random() % static_cast<unsigned>(config.model.vocab));
    }
    engine.device->upload_async(tokens.view().data, values.data(), values.size() * sizeof(int32_t));
    const StepScalars scalars{
        .seed = 3,
        .draw = static_cast<uint64_t>(step),
        .learning_rate = static_cast<float>(learning_rate(config.train, step)),
        .beta1_correction = static_cast<float>(1 - std::pow(config.train.beta1, step + 1)),
        .beta2_correction = static_cast<float>(1 - std::pow(config.train.beta2, step + 1)),
        .ema_decay = static_cast<float>(config.train.ema_decay),
    };
    engine.device->upload_async(engine.step_memory.view().data, &scalars, sizeof scalars);
    graphed.run([&] {
      Tape tape;
      Ctx ctx = engine.ctx(&tape, true);
      store.begin_step();
      backward(ctx, mean(ctx, model->token_losses(ctx, tokens)));
      store.finish_gradients(ctx);
      update_parameters(ctx, store, config.train);
    });
    run.losses.push_back(engine.results().loss);
    if (options.disturb) {
      Ctx ctx = engine.ctx();
      ctx.results = nullptr;
      kept.push_back(model->logits(ctx, other));
      kept_values.push_back(engine.host(kept.back()));
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(engine.host(kept[i]), kept_values[i]) << "kept after step " << i;
  run.weights = engine.host(store.master());
  run.replayed = graphed.replaying();
  return run;
}

Config training_config() {
  Config config = small_config({"fixed", 6, 2, 2});
  config.model.width = 32;
  config.model.attention = {{"strided", 6, 1, 1}, {"fixed", 6, 2, 2}};
  config.train.steps = 20;
  config.train.batch = 3;
  config.train.warmup = 5;
  config.train.learning_rate = 3e-3;
  return config;
}

TEST(Training, OneBatchIsLearned) {
  Config config = training_config();
  config.train.steps = 60;
  config.train.learning_rate = 1e-2;
  const Training run = train(config, {.same_batch = true, .steps = 60});
  EXPECT_NEAR(run.losses.front(), std::log(7.0), 1e-6);  // the output layer starts at zero
  EXPECT_LT(run.losses.back(), 0.2);
}

TEST(Training, OnTheCpuAGraphedStepIsACall) {
  const Config config = training_config();
  const Training plain = train(config, {}), graphed = train(config, {.graph = true});
  EXPECT_EQ(plain.losses, graphed.losses);
  EXPECT_EQ(plain.weights, graphed.weights);
  EXPECT_FALSE(graphed.replayed);
}

#ifdef WEFT_CUDA
TEST(CudaEngine, ReplayedStepsAreTheSameBits) {
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    for (const Recompute recompute : kEveryRecompute) {
      SCOPED_TRACE(str(name_of(compute), ", recompute ", text_of(recompute)));
      Config config = training_config();
      config.model.dropout = 0.3;
      config.model.embedding_dropout = 0.1;
      config.train.recompute = recompute;
      config.train.ema_decay = 0.9;
      const Training eager = train(config, {.device = "cuda", .compute = compute});
      const Training graphed =
          train(config, {.device = "cuda", .compute = compute, .graph = true, .disturb = true});
      EXPECT_TRUE(graphed.replayed);
      EXPECT_FALSE(eager.replayed);
      EXPECT_EQ(eager.losses, graphed.losses);
      EXPECT_EQ(eager.weights, graphed.weights);
    }
  }
}

TEST(CudaEngine, TrainsAsTheCpuDoes) {
  Config config = training_config();
  config.model.dropout = 0.2;
  const Training cpu = train(config, {}), cuda = train(config, {.device = "cuda"});
  expect_near(cuda.losses, cpu.losses, 1e-4, "losses");
}

TEST(CudaEngine, CaptureFailureIsSaidAndTheStreamGoesOn) {
  Engine engine("cuda");
  GraphedStep step(*engine.device, true);
  int calls = 0;
  const auto work = [&] {
    if (++calls == 3) engine.device->synchronize();
  };
  step.run(work);
  step.run(work);
  try {
    step.run(work);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("train.graph: false"), std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(step.replaying());
  EXPECT_EQ(engine.host(engine.tensor({2}, {1, 2}, DType::f32)), (std::vector<double>{1, 2}));
}

// Launched several times before the first of these has run: each copies what its launch found. The
// ring that the copies go through comes round, and its buffers grow when other copies have moved
// the small ones on to those of the large ones.
TEST(CudaEngine, AGraphUploadsWhatEachLaunchFinds) {
  Engine engine("cuda");
  Device& device = *engine.device;
  constexpr int64_t kSize = 5000, kRuns = 40;
  const Tensor x(*device.pool, {kSize}, DType::f32), y(*device.pool, {1}, DType::f32),
      history(*device.pool, {kRuns, kSize + 1}, DType::f32),
      row(*device.pool, {kSize + 1}, DType::f32);
  std::vector<float> values(kSize);
  float scalar = 0;
  GraphedStep step(device, true);
  Gate gate;
  for (int64_t run = 0; run < kRuns; ++run) {
    if (run == 10) {
      device.synchronize();
      gate.close(std::get<CudaQueue>(device.queue).stream);
    }
    if (run == 16) {
      EXPECT_TRUE(gate.open()) << "a launch waited for the device";
    }
    if (run >= 16 && run % 4 == 0) device.upload_async(y.view().data, &scalar, sizeof scalar);
    for (int64_t i = 0; i < kSize; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>(run * kSize + i);
    scalar = static_cast<float>(-run);
    step.run([&] {
      device.upload_async(y.view().data, &scalar, sizeof scalar);
      device.upload_async(x.view().data, values.data(), values.size() * sizeof(float));
      launch(device.queue, Add{{row.slice(0, {kSize}), false}, x});
      launch(device.queue, Add{{row.slice(kSize, {1}), false}, y});
    });
    launch(device.queue, Add{{history.slice(run * (kSize + 1), {kSize + 1}), false}, row});
    std::fill(values.begin(), values.end(), -1.0f);
    scalar = -1;
  }
  EXPECT_TRUE(step.replaying());
  const std::vector<double> got = to_host(device, history);
  for (int64_t run = 0; run < kRuns; ++run) {
    const double* const r = &got[static_cast<std::size_t>(run * (kSize + 1))];
    for (int64_t i = 0; i < kSize; ++i)
      ASSERT_EQ(r[i], static_cast<double>(run * kSize + i)) << run;
    EXPECT_EQ(r[kSize], static_cast<double>(-run));
  }
}

TEST(CudaEngine, AnUploadThatHasNotBeenRunIsNotRecorded) {
  Engine engine("cuda");
  const Tensor x(*engine.device->pool, {100000}, DType::f32);
  const std::vector<float> values(100000);
  GraphedStep step(*engine.device, true);
  int calls = 0;
  const auto work = [&] {
    if (++calls == 3)
      engine.device->upload_async(x.view().data, values.data(), values.size() * sizeof(float));
  };
  step.run(work);
  step.run(work);
  EXPECT_THROW(step.run(work), Error);
}

TEST(CudaEngine, AGraphThatWouldGrowThePoolIsRefused) {
  Engine engine("cuda");
  GraphedStep step(*engine.device, true);
  int64_t size = 1000;
  const auto work = [&] {
    const Tensor t(*engine.device->pool, {size}, DType::f32);
    engine.device->zero(t);
    size *= 2;
  };
  step.run(work);
  step.run(work);
  EXPECT_THROW(step.run(work), Error);
}
#endif
}  // namespace
}  // namespace weft
