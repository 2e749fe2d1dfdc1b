// SPDX-License-Identifier: MIT
// hopper/fused, one kernel for all three gradients: shapes that fill neither tiles nor blocks, work
// items that wait for each other, and the same bits every time.
#include <array>
#include <tuple>
#ifdef WEFT_CUDA
#include "tests/kernels/attention/attention_gpu.h"

#include <gtest/gtest.h>

namespace weft {
namespace {
using namespace attention_test;

AttentionBackward of_head_size(const AttentionMaps& maps, int64_t size) {
  const HeadsView x{nullptr, DType::bf16, 1, 256, 1, size, 256 * size, size, size};
  AttentionBackward g;
  g.q = g.k = g.v = g.y = g.dq = g.dk = g.dv = g.dy = x;
  g.maps = maps;
  return g;
}

bool takes_fused(AttentionBackward g) {
  g.scratch.data = &g;
  return hopper_kernel_of(g, g.maps.pass[0]) == attention::Kernel::hopper_fused;
}

TEST(CudaAttentionFused, TakesOnePassOfSmallHeads) {
  const GpuMaps fixed(*make_pattern({"fixed", 128, 32}, 1), 1, 256, 64, kTile);
  EXPECT_TRUE(takes_fused(of_head_size(fixed.maps, 64)));
  EXPECT_FALSE(takes_fused(of_head_size(fixed.maps, 72)));
  const GpuMaps narrow(*make_pattern({"fixed", 128, 4}, 1), 1, 256, 64, kTile);  // runs of 4 keys
  EXPECT_FALSE(takes_fused(of_head_size(narrow.maps, 64)));
  // hopper/band does that
  const GpuMaps local(*make_pattern({"local", 100}, 1), 1, 256, 64, kTile);
  EXPECT_FALSE(takes_fused(of_head_size(local.maps, 64)));
}

TEST(CudaAttentionFused, IsAskedForWhereWalksAreLongAndPairsFew) {
  for (const auto& [kind, n, batch, gains] : {std::tuple{"all", 12288, 1, true},
                                              {"all", 12288, 64, true},
                                              {"all", 12288, 65, false},
                                              {"fixed", 12288, 1, true},
                                              {"fixed", 6144, 1, true},
                                              {"fixed", 3072, 1, false},
                                              {"all", 1024, 1, false}}) {
    const GpuMaps maps(*make_pattern({kind, 128, 32}, 1), 1, n, 64, kTile);
    AttentionBackward g = of_head_size(maps.maps, 64);
    g.q.batch = batch;
    const auto scratch = attention::wanted_scratch(g, 90, attention::Scratch::kWhereFaster);
    EXPECT_EQ(scratch > 0, gains) << kind << ", " << n << ", batch " << batch;
  }
}

// Lengths that end inside a block and inside a tile, all of a block as its summary, sub-blocks by
// head.
TEST(CudaAttentionFused, FixedOfOddShapes) {
  for (const auto& [stride, c, verts, n] : {std::array<int64_t, 4>{128, 32, 1, 1500},
                                            {128, 32, 4, 1031},
                                            {128, 8, 2, 900},
                                            {128, 128, 1, 700},
                                            {96, 24, 4, 777},
                                            {256, 64, 2, 2000},
                                            {64, 16, 1, 640}}) {
    PatternSpec spec{"fixed", stride, c};
    spec.num_verts = verts;
    const auto pattern = make_pattern(spec, 4);
    expect_agreement<bf16>(*pattern, {{1, n, 4, 64, 64}, kTile}, pattern->name());
    expect_agreement<f16>(*pattern, {{1, n, 4, 40, 40}, kTile}, pattern->name());
  }
}

// More tasks than blocks of a grid, so that a block takes several, each after others of its head.
TEST(CudaAttentionFused, ManyTasks) {
  expect_agreement<bf16>(*make_pattern({"all"}, 20), {{1, 900, 20, 64, 64}}, "all");
  expect_agreement<bf16>(*make_pattern({"fixed", 64, 16}, 20), {{1, 900, 20, 64, 64}, kTile},
                         "fixed");
}

TEST(CudaAttentionFused, AThousandRunsGiveTheSameBits) {
  PatternSpec spec{"fixed", 128, 32};
  spec.num_verts = 2;
  for (const PatternSpec& of : {spec, PatternSpec{"all"}}) {
    const Sizes size{2, 1500, 8, 64, 64};
    const GpuMaps maps(*make_pattern(of, 8), 8, size.time, 64, kTile);
    Data<bf16> x(size);
    x.form = AttentionForm::hopper;
    run_on_gpu(x, maps.maps);
    OnGpu<bf16> d(x);
    launch(gpu().queue, d.forward(maps.maps));
    const AttentionBackward backward = d.backward_with_scratch(maps.maps);
    ASSERT_TRUE(backward.scratch);
    EXPECT_EQ(runs_with_other_bits([&] { launch(gpu().queue, backward); }, d.dq, d.dk_dv), 0)
        << of.kind;
  }
}

TEST(CudaAttentionFused, ScratchThatIsTooSmallIsRefused) {
  const Sizes size{1, 256, 1, 64, 64};
  const GpuMaps maps(*make_pattern({"all"}, 1), 1, size.time, 64, kTile);
  Data<bf16> x(size);
  x.form = AttentionForm::hopper;
  OnGpu<bf16> d(x);
  launch(gpu().queue, d.forward(maps.maps));
  AttentionBackward g = d.backward_with_scratch(maps.maps);
  --g.scratch.shape[0];
  EXPECT_THROW(launch(gpu().queue, g), Error);
}
}  // namespace
}  // namespace weft
#endif
