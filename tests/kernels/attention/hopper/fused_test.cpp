// SPDX-License-Identifier: MIT
// hopper/fused, one kernel for all three gradients: shapes that fill neither tiles nor blocks, work
// items that wait for each other, and the same bits every time.
#include "kernels/attention/select.h"
#include "tests/kernels/attention/attention_case.h"

#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <tuple>
#include <vector>
#ifdef WEFT_CUDA
#include "tests/kernels/attention/attention_gpu.h"
#endif

namespace weft {
namespace {
using attention::Kernel;
using namespace attention_test;

// A first pass of `tiles` query tiles over lists, of slots that follow each other.
AttentionPass lists_of(int32_t tiles, int64_t visited) {
  AttentionPass pass;
  pass.query_tiles = pass.key_tiles = tiles;
  pass.visited = visited;
  pass.query_run = pass.key_run = kTile;
  return pass;
}

TEST(AttentionFused, TakesHeadsUpTo128) {
  const AttentionPass pass = lists_of(4, 10);
  const auto kernel = [&](int64_t qk, int64_t v, bool scratch = true, int passes = 1) {
    AttentionBackward g = problem_of(256, qk, v);
    if (scratch) g.scratch.data = &g;
    g.maps.passes = passes;
    return hopper_kernel_of(g, pass);
  };
  for (const int64_t size : {8, 64, 72, 96, 128})
    EXPECT_EQ(kernel(size, size), Kernel::hopper_fused) << "heads of " << size;
  EXPECT_EQ(kernel(128, 64), Kernel::hopper_fused);
  EXPECT_EQ(kernel(64, 128), Kernel::hopper) << "padded to 128, half of q and k would be zeros";
  for (const int64_t size : {64, 128}) {
    EXPECT_EQ(kernel(size, size, false), Kernel::hopper) << "no scratch";
    EXPECT_EQ(kernel(size, size, true, 2), Kernel::hopper) << "two passes";
  }
}

constexpr Sizes kSizesOf128[] = {{2, 200, 3, 72, 72},
                                 {1, 1031, 3, 96, 96},
                                 {2, 200, 3, 128, 128},
                                 {1, 1031, 3, 128, 128},
                                 {1, 700, 3, 128, 40}};

std::vector<PatternSpec> patterns_of_128() {
  return {{"all"}, {"fixed", 128, 32}, {"fixed", 96, 24}, {"local", 300}};
}

TEST(AttentionFused, TakesListsOfRuns) {
  const auto kernel = [](const PatternSpec& spec, const Sizes& size) {
    const HostMaps host(*make_pattern(spec, 3), 3, size.lengths(), size.qk, kTile);
    Data<bf16> x(size);
    AttentionBackward g = x.backward(host.maps);
    g.scratch.data = &g;
    return hopper_kernel_of(g, host.maps.pass[0]);
  };
  for (const Sizes& size : kSizesOf128) {
    for (const PatternSpec& spec : patterns_of_128())
      EXPECT_EQ(kernel(spec, size), Kernel::hopper_fused) << spec.kind << ", n " << size.time;
    EXPECT_NE(kernel({"strided", 7}, size), Kernel::hopper_fused) << "rows that TMA cannot take";
  }
}

TEST(AttentionFused, HeadsOf128HaveTwiceTheScratchForDq) {
  const auto scratch = [](int64_t size) {
    return attention::scratch_of(
        Kernel::hopper_fused, attention::Problem::of(problem_of(200, size, size)), lists_of(4, 10));
  };
  EXPECT_EQ(scratch(64), 6 * (4 * (64 * 64 + 1) + 2 * 200));
  EXPECT_EQ(scratch(72), 6 * (4 * (64 * 128 + 1) + 2 * 200));
  EXPECT_EQ(scratch(128), scratch(72));
}

#ifdef WEFT_CUDA
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

TEST(CudaAttentionFused, TakesOnePass) {
  const GpuMaps fixed(*make_pattern({"fixed", 128, 32}, 1), 1, 256, 64, kTile);
  EXPECT_TRUE(takes_fused(of_head_size(fixed.maps, 64)));
  EXPECT_TRUE(takes_fused(of_head_size(fixed.maps, 72)));
  EXPECT_FALSE(takes_fused(of_head_size(fixed.maps, 136)));
  const GpuMaps narrow(*make_pattern({"fixed", 128, 4}, 1), 1, 256, 64, kTile);  // runs of 4 keys
  EXPECT_FALSE(takes_fused(of_head_size(narrow.maps, 64)));
  // hopper/band does that
  const GpuMaps local(*make_pattern({"local", 100}, 1), 1, 256, 64, kTile);
  EXPECT_FALSE(takes_fused(of_head_size(local.maps, 64)));
}

TEST(CudaAttentionFused, IsAskedForWhereWalksAreLongAndPairsFew) {
  for (const auto& [kind, n, batch, gains, of_128] : {std::tuple{"all", 12288, 1, true, true},
                                                      {"all", 12288, 64, true, true},
                                                      {"all", 12288, 65, false, true},
                                                      {"fixed", 12288, 1, true, false},
                                                      {"fixed", 6144, 1, true, false},
                                                      {"fixed", 3072, 1, false, false},
                                                      {"all", 1024, 1, false, false}}) {
    const GpuMaps maps(*make_pattern({kind, 128, 32}, 1), 1, n, 64, kTile);
    AttentionBackward g = of_head_size(maps.maps, 64);
    g.q.batch = batch;
    const auto scratch = attention::wanted_scratch(g, 90, attention::Scratch::kWhereFaster);
    EXPECT_EQ(scratch > 0, gains) << kind << ", " << n << ", batch " << batch;
    g.q.size = g.k.size = 128;
    EXPECT_EQ(attention::wanted_scratch(g, 90, attention::Scratch::kWhereFaster) > 0, of_128)
        << "heads of 128, " << kind << ", " << n << ", batch " << batch;
  }
}

// Lengths that end inside a tile, and an odd number of tiles.
template <class T>
void expect_heads_of_128() {
  for (const Sizes& size : kSizesOf128)
    for (const PatternSpec& spec : patterns_of_128())
      expect_agreement<T>(*make_pattern(spec, 3), {size, kTile}, spec.kind);
  expect_agreement<T>(*make_pattern({"all"}, 1), {{1, 64, 1, 128, 128}, kTile}, "one tile");
  expect_agreement<T>(*make_pattern({"all"}, 3), {{2, 700, 3, 128, 128}, kTile, true}, "documents",
                      {}, true);
}

TEST(CudaAttentionFused, HeadsOf128InBFloat16) { expect_heads_of_128<bf16>(); }

TEST(CudaAttentionFused, HeadsOf128InFloat16) { expect_heads_of_128<f16>(); }

// Blocks work on one group of pairs after the other: on an H200 128 are eight groups, 66 are six.
TEST(CudaAttentionFused, GroupsOfPairs) {
  expect_agreement<bf16>(*make_pattern({"all"}, 16), {{8, 450, 16, 128, 128}}, "128 pairs");
  expect_agreement<bf16>(*make_pattern({"all"}, 33), {{2, 450, 33, 128, 128}}, "66 pairs");
  expect_agreement<bf16>(*make_pattern({"fixed", 64, 16}, 40), {{1, 700, 40, 128, 128}, kTile},
                         "40 pairs, fixed");
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

void expect_same_bits(const Sizes& size) {
  PatternSpec spec{"fixed", 128, 32};
  spec.num_verts = 2;
  for (const PatternSpec& of : {spec, PatternSpec{"all"}}) {
    const int heads = static_cast<int>(size.heads);
    const GpuMaps maps(*make_pattern(of, heads), heads, size.time, size.qk, kTile);
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

TEST(CudaAttentionFused, AThousandRunsGiveTheSameBits) { expect_same_bits({2, 1500, 8, 64, 64}); }

TEST(CudaAttentionFused, AThousandRunsOfHeadsOf128GiveTheSameBits) {
  expect_same_bits({1, 900, 36, 72, 72});
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
#endif
}  // namespace
}  // namespace weft
