// SPDX-License-Identifier: MIT
// Training on a GPU: each precision learns, resumes to the same bits, and a captured step is the
// eager one.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>
#ifdef WEFT_CUDA
#include "src/config/config.h"
#include "tests/train/training.h"
#include "train/evaluation/evaluator.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace weft {
namespace {
class CudaTrainer : public testing::Test {
 protected:
  CudaTrainer() { write_corpus(dir / "corpus.h5", 20000, 32); }

  std::string run(const std::string& name, const std::vector<std::string>& overrides,
                  const std::string& device = "cuda") {
    return train(small_config(dir.path(), overrides), {.out = dir / name, .device = device});
  }

  std::vector<double> of(const std::string& name, const std::string& key) {
    return metric(dir / (name + "/metrics.jsonl"), key);
  }

  void expect_same_tensors(const std::string& a, const std::string& b) {
    weft::expect_same_tensors(dir / (a + "/latest.h5"), dir / (b + "/latest.h5"));
  }

  TempDir dir;
};

TEST_F(CudaTrainer, EachPrecisionLearnsAsTheCpuDoes) {
  const std::vector<std::string> common{"model.dropout=0", "train.steps=40", "train.log_every=1"};
  run("cpu", common, "cpu");
  const std::vector<double> reference = of("cpu", "loss");
  for (const auto& [precision, tolerance] :
       {std::pair{"f32", 1e-4}, {"bf16", 3e-2}, {"f16", 1e-2}}) {
    std::vector<std::string> overrides = common;
    overrides.push_back(str("precision=", precision));
    run(precision, overrides);
    const std::vector<double> loss = of(precision, "loss");
    ASSERT_EQ(loss.size(), reference.size());
    for (std::size_t i = 0; i < 20; ++i)
      EXPECT_NEAR(loss[i], reference[i], tolerance * reference[i])
          << precision << " step " << i + 1;
    EXPECT_LT(loss.back(), loss.front() - 0.5) << precision;
  }
}

TEST_F(CudaTrainer, OverflowsAreSkippedUntilTheGradientFits) {
  run("f16", {"precision=f16", "train.loss_scale=16777216", "train.batch=1", "train.log_every=1",
              "train.steps=30"});
  const std::vector<double> scale = of("f16", "loss_scale"), norm = of("f16", "grad_norm"),
                            skipped = of("f16", "skipped");
  ASSERT_EQ(scale.size(), 30u);
  ASSERT_EQ(skipped.size(), 30u);
  for (std::size_t i = 0; i < scale.size(); ++i)
    EXPECT_EQ(scale[i], std::ldexp(16777216, -static_cast<int>(skipped[i]))) << "halved for each";
  EXPECT_EQ(norm.size(), 30 - static_cast<std::size_t>(skipped.back()))
      << "a skipped update has none";
  EXPECT_LT(scale.front(), 16777216);  // 2^24 / 64 tokens does not fit into f16
  EXPECT_LT(of("f16", "loss").back(), of("f16", "loss").front());
}

// 2^24 over the 192 tokens of a step does not fit into f16, half of it does: with a window of four
// steps updates 0, 5, 10 and 15 are skipped, the last ones before an evaluation (6), a checkpoint
// (11) and a longer context (11).
TEST_F(CudaTrainer, StepsAheadAreThoseThatAreWaitedFor) {
  for (const char* accumulation : {"1", "2"}) {
    const std::vector<std::string> common{"precision=f16",
                                          "train.loss_scale=16777216",
                                          "train.loss_scale_window=4",
                                          "train.steps=17",
                                          "train.eval_every=6",
                                          "train.save_every=11",
                                          "model.context=48",
                                          "model.position_axes=[6, 8]",
                                          "train.context_schedule=[[0, 16], [10, 24], [11, 48]]",
                                          str("train.accumulation=", accumulation)};
    for (const char* every : {"1", "100"}) {
      std::vector<std::string> overrides = common;
      overrides.push_back(str("train.log_every=", every));
      run(str(accumulation, "of", every), overrides);
    }
    const std::string waits = str(accumulation, "of1"), ahead = str(accumulation, "of100");
    expect_same_tensors(ahead, waits);
    weft::expect_same_tensors(dir / (ahead + "/step_00000011.h5"),
                              dir / (waits + "/step_00000011.h5"));
    EXPECT_EQ(of(ahead, "valid_bits"), of(waits, "valid_bits"));
    const std::vector<double> scale = of(waits, "loss_scale");
    ASSERT_EQ(scale.size(), 17u);
    EXPECT_EQ(std::count(scale.begin(), scale.end(), 16777216.0), 3) << "behind every fifth step";
    EXPECT_EQ(of(ahead, "skipped").back(), 4);
    EXPECT_EQ(of(ahead, "loss_scale").back(), scale.back());
  }
}

TEST_F(CudaTrainer, ACapturedStepIsTheEagerStep) {
  for (const char* graph : {"false", "true"})
    run(graph, {"precision=bf16", "train.accumulation=2", "model.dropout=0.3",
                str("train.graph=", graph)});
  expect_same_tensors("true", "false");
}

TEST_F(CudaTrainer, ResumesToTheSameBytes) {
  for (const char* precision : {"f32", "bf16", "f16"}) {
    const Config config = small_config(
        dir.path(), {str("precision=", precision), "train.context_schedule=[[0, 16], [7, 64]]",
                     "train.accumulation=2"});
    const std::string whole = str("whole_", precision), parts = str("parts_", precision);
    train(config, {.out = dir / whole, .device = "cuda"});
    train(config, {.out = dir / parts, .device = "cuda", .max_steps = 10});
    train(config, {.resume = "", .out = dir / parts, .device = "cuda"});
    EXPECT_TRUE(read_file(dir / (whole + "/latest.h5")) == read_file(dir / (parts + "/latest.h5")))
        << precision;
    EXPECT_EQ(timeless_metrics(dir / (whole + "/metrics.jsonl")),
              timeless_metrics(dir / (parts + "/metrics.jsonl")));
  }
}

TEST_F(CudaTrainer, RecomputingChangesNothing) {
  run("kept", {"precision=bf16"});
  run("again", {"precision=bf16", "train.recompute=block"});
  expect_same_tensors("kept", "again");
}

TEST_F(CudaTrainer, AccumulatedGradientsAreThoseOfTheWholeBatch) {
  const std::vector<std::string> common{"model.dropout=0", "train.log_every=1", "train.steps=10"};
  run("whole", common);
  std::vector<std::string> parts = common;
  parts.push_back("train.accumulation=4");
  run("parts", parts);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(of("parts", "loss")[i], of("whole", "loss")[i], 1e-4 * of("whole", "loss")[i])
        << "step " << i + 1;
}

TEST_F(CudaTrainer, EvaluatesAndSamplesAsTheCpuDoes) {
  run("f32", {"train.steps=60"});
  const std::string checkpoint = dir / "f32/latest.h5";
  const auto cpu = load_model(checkpoint, "cpu", Weights::last),
             cuda = load_model(checkpoint, "cuda", Weights::last);
  const TokenDataset data(dir / "corpus.h5", "test", 32);
  const EvalOptions evaluation{.context = 64, .min_context = 48, .batch = 3};
  EXPECT_NEAR(evaluate(*cpu->device, *cpu->model, data, evaluation).bits,
              evaluate(*cuda->device, *cuda->model, data, evaluation).bits, 1e-4);
}

TEST_F(CudaTrainer, SamplesTheSameTextInAnyBatch) {
  for (const char* precision : {"f32", "bf16", "f16"}) {
    run(precision, {str("precision=", precision), "train.steps=30"});
    const auto loaded = load_model(dir / (str(precision) + "/latest.h5"), "cuda", Weights::last);
    SampleOptions options{.prompt = {1, 2}, .length = 50, .seed = 4, .count = 6, .batch = 1};
    const auto texts = [&] {
      std::vector<std::vector<int32_t>> out(6);
      sample(*loaded->device, *loaded->model, loaded->config.model, options,
             [&](int64_t sample, int64_t, int32_t token) {
               out[static_cast<std::size_t>(sample)].push_back(token);
             });
      return out;
    };
    const auto alone = texts();
    for (const int64_t batch : {2, 6}) {
      options.batch = batch;
      EXPECT_EQ(texts(), alone) << precision << " batch " << batch;
    }
  }
}
}  // namespace
}  // namespace weft
#endif
