// SPDX-License-Identifier: MIT
// DecodeBlocks on a GPU: the persistent kernel beside five launches a block, the same bits in every
// batch, and again in a replayed graph. Awkward sizes beside the CPU form:
// tests/kernels/cases_test.cpp.
#include <cstddef>
#include <vector>
#ifdef WEFT_CUDA

#include "tests/kernels/sampling/decode/blocks_gpu.h"

#include <gtest/gtest.h>

namespace weft {
namespace {
using namespace decode_test;

constexpr Model kText = {512, 8, 64, 64, 2048, 3, 190}, kImages = {256, 2, 64, 128, 512, 5, 96},
                kWideHeads = {256, 2, 128, 128, 1024, 2, 65}, kOdd = {192, 4, 40, 48, 320, 70, 17};

void expect_equal_in_batches(const Model& m, DType type) {
  const auto five = Blocks(m, type, 5, Form::persistent).run();
  const auto plain = Blocks(m, type, 5, Form::steps).run();
  for (std::size_t i = 0; i < five.size(); ++i)
    EXPECT_LT(relative_difference(five[i], plain[i]), type == DType::f16 ? 4e-3 : 3e-2)
        << "output " << i;
  for (const int64_t batch : {1, 3, 8, 16, 17, 64, 300}) {
    SCOPED_TRACE(batch);
    Blocks blocks(m, type, batch, Form::persistent);
    for (int again = 0; again < 2; ++again) {
      const auto got = blocks.run();
      for (std::size_t i = 0; i < got.size(); ++i) {
        std::size_t at = 0;
        while (at < got[i].size() && got[i][at] == five[i][at % five[i].size()]) ++at;
        EXPECT_EQ(at, got[i].size()) << "output " << i;
      }
    }
  }
}

TEST(CudaDecodeBlocks, TextIsTheSameInEveryBatch) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  for (const DType type : {DType::bf16, DType::f16}) expect_equal_in_batches(kText, type);
}

TEST(CudaDecodeBlocks, ImagesAreTheSameInEveryBatch) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  expect_equal_in_batches(kImages, DType::bf16);
  expect_equal_in_batches(kWideHeads, DType::f16);
}

// More layers than a launch takes.
TEST(CudaDecodeBlocks, ManyLayersTakeTwoLaunches) {
  if (!is_hopper()) GTEST_SKIP() << "not a Hopper GPU";
  expect_equal_in_batches(kOdd, DType::f16);
}
}  // namespace
}  // namespace weft

#endif
