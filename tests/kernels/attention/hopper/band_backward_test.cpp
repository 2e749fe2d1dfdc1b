// SPDX-License-Identifier: MIT
// The backward kernels over bands: what they cover, and that they give the same bits every time.
#include "kernels/attention/select.h"
#include "tests/kernels/attention/attention_case.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <utility>

#ifdef WEFT_CUDA
#include "tests/kernels/attention/attention_gpu.h"
#endif

namespace weft {
namespace {
using attention::Kernel;
using attention_test::hopper_kernel_of, attention_test::pass_of, attention_test::problem_of;

TEST(AttentionBandBackward, CoversWhatTheRegistersHold) {
  const auto covers = [](const Band& band, int64_t n, int64_t qk, int64_t v) {
    return hopper_kernel_of(problem_of(n, qk, v), pass_of(band)) == Kernel::hopper_band;
  };
  for (const int64_t v : {8, 64, 128}) {
    EXPECT_TRUE(covers({1, 128, 0}, 1000, 64, v));
    EXPECT_FALSE(covers({1, 129, 0}, 1000, 64, v));
    EXPECT_FALSE(covers({1, 128, 0}, 1000, 72, v));  // three tiles of keys
    EXPECT_TRUE(covers({1, 128, 0}, 128, 72, v));
    EXPECT_TRUE(covers({1, 65, 0}, 1000, 128, v));
    EXPECT_TRUE(covers({128, 96, 1}, 128 * 96, 128, v));
    EXPECT_FALSE(covers({1024, 1024, 0}, 1024 * 1024, 64, v));
  }
  EXPECT_FALSE(covers({}, 1000, 64, 64));
}

TEST(AttentionBandBackward, HeadsOf128WithThreeKeyTilesHaveAKernelOfTheirOwn) {
  const auto covers = [](const Band& band, int64_t n, int64_t qk, int64_t v) {
    return hopper_kernel_of(problem_of(n, qk, v), pass_of(band)) == Kernel::hopper_head128;
  };
  for (const int64_t v : {8, 64, 128}) {
    EXPECT_TRUE(covers({1, 128, 0}, 1000, 128, v));
    EXPECT_TRUE(covers({1, 67, 0}, 1000, 72, v));
    EXPECT_TRUE(covers({3, 100, 7}, 3 * 129, 128, v));
    EXPECT_FALSE(covers({1, 129, 0}, 1000, 128, v));
    EXPECT_FALSE(covers({1, 65, 0}, 1000, 128, v));  // hopper/band does that
    EXPECT_FALSE(covers({1, 128, 0}, 128, 128, v));  // two tiles of keys
    EXPECT_FALSE(covers({1, 128, 0}, 1000, 64, v));
    EXPECT_FALSE(covers({1, 128, 0}, 1000, 136, v));
  }
  EXPECT_FALSE(covers({1, 128, 0}, 1000, 128, 136));
  EXPECT_FALSE(covers({}, 1000, 128, 128));
}

TEST(AttentionBandBackward, TakesStridesThatTmaTakes) {
  const AttentionPass pass = pass_of({1, 128, 0});
  AttentionBackward shared_keys = problem_of(300, 64, 64), backwards = problem_of(300, 64, 64),
                    one_head = problem_of(300, 64, 64);
  shared_keys.k.head_stride = 0;
  backwards.dy.batch_stride *= -1;
  for (HeadsView* x : {&one_head.q, &one_head.k, &one_head.v, &one_head.y, &one_head.dy,
                       &one_head.dq, &one_head.dk, &one_head.dv})
    x->heads = 1, x->head_stride = 0;
  EXPECT_EQ(hopper_kernel_of(shared_keys, pass), Kernel::hopper);
  EXPECT_EQ(hopper_kernel_of(backwards, pass), Kernel::hopper);
  EXPECT_EQ(hopper_kernel_of(one_head, pass), Kernel::hopper_band);
}

#ifdef WEFT_CUDA
using namespace attention_test;

// Several runs a block, runs that share queries, tiles that columns share, a second pass that adds.
TEST(CudaAttentionBandBackward, AThousandRunsGiveTheSameBits) {
  PatternSpec both{.kind = "merged"};
  both.of = {{"local", 16}, {"strided", 16}};
  for (const auto& [spec, size] : {std::pair{PatternSpec{"local", 128}, Sizes{2, 1536, 9, 64, 64}},
                                   {PatternSpec{"local", 128}, Sizes{1, 1500, 3, 64, 128}},
                                   {PatternSpec{"local", 128}, Sizes{2, 1500, 9, 128, 128}},
                                   {PatternSpec{"strided", 64}, Sizes{2, 24 * 64, 3, 64, 128}},
                                   {both, Sizes{1, 96 * 16, 9, 64, 64}}}) {
    const int heads = static_cast<int>(size.heads);
    const auto pattern = make_pattern(spec, heads);
    const GpuMaps maps(*pattern, heads, size.lengths(), std::max(size.qk, size.v), kTile);
    Data<bf16> x(size);
    const OnGpu<bf16> d(x);
    launch(gpu().queue, d.forward(maps.maps));
    const auto backward = [&] { launch(gpu().queue, d.backward(maps.maps)); };
    EXPECT_EQ(runs_with_other_bits(backward, d.dq, d.dk_dv), 0) << pattern->name();
  }
}
#endif
}  // namespace
}  // namespace weft
