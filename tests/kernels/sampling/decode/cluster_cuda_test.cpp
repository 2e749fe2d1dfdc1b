// SPDX-License-Identifier: MIT
// DecodeBlocks by clusters on a GPU: beside five launches a block, the same bits in batches of one
// to four, or to eight, in repeats and in a replayed graph.
#include <cstddef>
#include <vector>
#ifdef WEFT_CUDA

#include "tests/kernels/sampling/decode/blocks_gpu.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

namespace weft {
namespace {
using namespace decode_test;

// Lists end in the middle of a step of keys, or are longer than the persistent kernel takes.
constexpr Model kEnwik = {512, 8, 64, 64, 2048, 3, 190}, kLong = {512, 8, 64, 64, 2048, 2, 2500},
                kNarrow = {256, 4, 64, 64, 1024, 5, 17};

void expect_prefix(const std::vector<double>& got, const std::vector<double>& all) {
  ASSERT_LE(got.size(), all.size());
  std::size_t at = 0;
  while (at < got.size() && got[at] == all[at]) ++at;
  EXPECT_EQ(at, got.size());
}

void expect_equal_in_batches(const Model& m, DType type, Form form, int64_t most) {
  Blocks of_most(m, type, most, form);
  const auto all = of_most.run(), plain = Blocks(m, type, most, Form::steps).run();
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_LT(relative_difference(all[i], plain[i]), type == DType::f16 ? 4e-3 : 3e-2)
        << "output " << i;
  for (int64_t batch = 1; batch <= most; ++batch) {
    SCOPED_TRACE(batch);
    Blocks blocks(m, type, batch, form);
    for (int again = 0; again < 3; ++again) {
      const auto got = blocks.run();
      for (std::size_t i = 0; i < got.size(); ++i) expect_prefix(got[i], all[i]);
    }
  }
}

void expect_equal_in_small_batches(const Model& m, DType type) {
  expect_equal_in_batches(m, type, Form::cluster, 4);
}

TEST(CudaDecodeClusters, FewTextsAreTheSameInEveryBatch) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  for (const DType type : {DType::bf16, DType::f16}) expect_equal_in_small_batches(kEnwik, type);
}

TEST(CudaDecodeClusters, ListsMayBeLong) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  expect_equal_in_small_batches(kLong, DType::bf16);
}

TEST(CudaDecodeClusters, ModelsMayBeNarrow) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  expect_equal_in_small_batches(kNarrow, DType::f16);
}

TEST(CudaDecodeClusters, EightTextsAreTheSameInEveryBatch) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  for (const DType type : {DType::bf16, DType::f16})
    expect_equal_in_batches(kEnwik, type, Form::eight, 8);
  expect_equal_in_batches(kNarrow, DType::f16, Form::eight, 8);
  expect_equal_in_batches(kLong, DType::bf16, Form::eight, 8);
}

TEST(CudaDecodeClusters, OtherModelsAndBatchesAreNotPrepared) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  const auto bytes = [](const Model& m, int64_t batch, int64_t texts = 0) {
    Blocks blocks(m, DType::bf16, batch, Form::steps);
    blocks.kernel.texts = texts;
    return prepared_bytes(std::get<CudaQueue>(gpu().queue), blocks.kernel);
  };
  EXPECT_GT(bytes(kEnwik, 4), 0);
  EXPECT_GT(bytes(kEnwik, 8), bytes(kEnwik, 4));
  EXPECT_EQ(bytes(kEnwik, 1, 5), bytes(kEnwik, 8));
  EXPECT_EQ(bytes(kEnwik, 9), 0);
  EXPECT_EQ(bytes({256, 2, 64, 128, 512, 1, 9}, 1), 0);
  EXPECT_EQ(bytes({512, 8, 64, 64, 1024, 1, 9}, 1), 0);
}

// A launch waits for words that launches before it have cleared: replays take turns as launches do.
void expect_equal_in_graphs(Form form) {
  Blocks blocks(kEnwik, DType::bf16, 1, form);
  const auto first = blocks.run();
  auto& queue = std::get<CudaQueue>(gpu().queue);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(queue.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  for (int i = 0; i < 3; ++i) launch(gpu().queue, blocks.kernel);
  ASSERT_EQ(cudaStreamEndCapture(queue.stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec, queue.stream), cudaSuccess);
  expect_prefix(to_host(gpu(), blocks.kernel.y), first[0]);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST(CudaDecodeClusters, GraphsAreReplayed) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  expect_equal_in_graphs(Form::cluster);
}

TEST(CudaDecodeClusters, EightTextsAreReplayed) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  expect_equal_in_graphs(Form::eight);
}
}  // namespace
}  // namespace weft

#endif
