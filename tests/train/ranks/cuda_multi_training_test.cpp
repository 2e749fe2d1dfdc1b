// SPDX-License-Identifier: MIT
// Training on two GPUs: the model that one trains, captured as eager, the same bits every time.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>
#ifdef WEFT_CUDA
#include "src/parts/parts.h"
#include "tests/train/ranks/ranks_testing.h"

namespace weft {
namespace {
using CudaMultiTraining = GpuRuns;

TEST_F(CudaMultiTraining, MicroBatchesOfTwoGpusAreThoseOfOne) {
  const std::vector<std::string> common{"train.steps=50", "train.log_every=1",
                                        "train.eval_every=0"};
  auto two = common, one = common;
  two.push_back("train.accumulation=2");
  one.push_back("train.accumulation=4");
  run("two", 2, two);
  run("one", 1, one);
  ASSERT_EQ(of("one", "loss").size(), 50u);
  expect_near_series("two", "one", "loss", 1e-6);
  expect_near_series("two", "one", "grad_norm", 1e-5);
}

TEST_F(CudaMultiTraining, ACapturedStepIsTheEagerStep) {
  for (const auto& [accumulation, reduce] : {std::pair{"1", "bf16"}, {"2", "f32"}}) {
    for (const char* graph : {"true", "false"})
      run(str(reduce, graph), 2,
          {"precision=bf16", "model.dropout=0.3", "train.bucket_mb=1",
           str("train.accumulation=", accumulation), str("train.reduce_dtype=", reduce),
           str("train.graph=", graph)});
    expect_same_latest(str(reduce, "true"), str(reduce, "false"));
  }
}

TEST_F(CudaMultiTraining, ContentDecidesTheSameCapturedStoppedOrNot) {
  if (const std::string absent = absent_part_text("routing"); !absent.empty())
    GTEST_SKIP() << absent;
  const std::vector<std::string> common{
      "precision=bf16",
      "model.attention=[{kind: routing, clusters: 3, window: 20}, {kind: heads, of: [{kind: lsh, "
      "rounds: 2, window: 9}, {kind: topk_blocks, block: 64, blocks: 2}]}]"};
  auto eager = common;
  eager.push_back("train.graph=false");
  run("whole", 2, common);
  run("eager", 2, eager, {"--max-steps", "9"});
  run("eager", 2, eager, {"--resume"});
  expect_same_latest("whole", "eager");
}

TEST_F(CudaMultiTraining, TheSameBitsStoppedOrNotAndLongerWindows) {
  const std::vector<std::string> overrides{"precision=bf16",
                                           "train.context_schedule=[[0, 16], [7, 64]]"};
  run("whole", 2, overrides);
  run("parts", 2, overrides, {"--max-steps", "9"});
  run("parts", 2, overrides, {"--resume"});
  expect_same_latest("whole", "parts");
  EXPECT_EQ(of("whole", "valid_bits"), of("parts", "valid_bits"));
  run("mixed", 2, overrides, {"--max-steps", "9"});
  run("mixed", 1, overrides, {"--resume"});
  expect_near_series("mixed", "whole", "loss", 1e-2);
}

class CudaMultiSharded : public GpuRuns, public testing::WithParamInterface<const char*> {};

// Two numbers have one sum, in whatever order they are added.
TEST_P(CudaMultiSharded, IsTheWholeOptimizer) {
  if (const std::string absent = absent_part_text(GetParam()); !absent.empty())
    GTEST_SKIP() << absent;
  const std::string precision = GetParam(), optimizer = precision == "muon" ? "muon" : "adamw";
  const std::vector<std::string> overrides{
      "precision=" + (precision == "muon" ? "bf16" : precision), "train.optimizer=" + optimizer,
      "train.accumulation=2", "train.bucket_mb=1"};
  auto sharded = overrides;
  sharded.push_back("train.shard_optimizer=true");
  run("whole", 2, overrides);
  run("parts", 2, sharded, {"--max-steps", "9"});
  setenv("WEFT_HOST_REDUCE", "1", 1);  // terms of sums go another way
  run("parts", 2, sharded, {"--resume"});
  unsetenv("WEFT_HOST_REDUCE");
  expect_same_latest("parts", "whole");
  for (const char* key : {"valid_bits_ema", "grad_norm"})
    EXPECT_EQ(of("whole", key), of("parts", key));
}

INSTANTIATE_TEST_SUITE_P(CudaMulti, CudaMultiSharded, testing::Values("bf16", "f32", "muon"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(CudaMultiTraining, LossScaleIsOneForAll) {
  run("f16", 2,
      {"precision=f16", "train.loss_scale=16777216", "train.batch=2", "train.log_every=1",
       "train.steps=30"});
  const std::vector<double> scale = of("f16", "loss_scale");
  ASSERT_EQ(scale.size(), 30u);
  EXPECT_LT(scale.front(), 16777216);
  EXPECT_LT(of("f16", "loss").back(), of("f16", "loss").front());
}

TEST_F(CudaMultiTraining, StepsAheadOfALossScaleAreThoseThatAreWaitedFor) {
  for (const char* sharded : {"false", "true"}) {
    const std::vector<std::string> common{"precision=f16",
                                          "train.loss_scale=16777216",
                                          "train.loss_scale_window=4",
                                          "train.bucket_mb=1",
                                          "model.context=48",
                                          "model.position_axes=[6, 8]",
                                          str("train.shard_optimizer=", sharded)};
    for (const char* every : {"1", "100"}) {
      auto overrides = common;
      overrides.push_back(str("train.log_every=", every));
      run(str(sharded, every), 2, overrides);
    }
    expect_same_latest(str(sharded, "100"), str(sharded, "1"));
    const std::vector<double> scale = of(str(sharded, "1"), "loss_scale");
    EXPECT_NE(*std::min_element(scale.begin(), scale.end()),
              *std::max_element(scale.begin(), scale.end()));
  }
}
}  // namespace
}  // namespace weft
#endif
