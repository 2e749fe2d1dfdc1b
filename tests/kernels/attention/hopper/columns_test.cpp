// SPDX-License-Identifier: MIT
// hopper/column: what it covers, lengths at the edges of tiles, in every form that covers them, and
// the same bits every time.
#include "kernels/attention/select.h"
#include "tests/kernels/attention/attention_case.h"

#include <gtest/gtest.h>
#include <utility>

#ifdef WEFT_CUDA
#include "tests/kernels/attention/attention_gpu.h"
#endif

namespace weft {
namespace {
using attention::Kernel;
using attention_test::hopper_kernel_of, attention_test::pass_of, attention_test::problem_of;

TEST(AttentionColumns, CoversWholeColumnsOfManyRows) {
  const auto covers = [](int32_t stride, int32_t reach, int64_t rows, int64_t qk, int64_t v) {
    AttentionBackward g = problem_of(rows * stride, qk, v);
    g.scratch.data = &g;
    return hopper_kernel_of(g, pass_of({stride, reach, 0})) == Kernel::hopper_column;
  };
  for (const int64_t rows : {129, 256, 300, 1024}) {
    EXPECT_TRUE(covers(13, 2000, rows, 64, 64));
    EXPECT_TRUE(covers(11, static_cast<int32_t>(rows), rows, 24, 64));
    EXPECT_FALSE(covers(13, 128, rows, 64, 64));   // hopper/band does that
    EXPECT_FALSE(covers(13, 2000, rows, 64, 72));  // no registers
    EXPECT_FALSE(covers(10, 2000, rows, 64, 64));  // 60 columns
    EXPECT_FALSE(covers(1, 2000, rows, 64, 64));
  }
  EXPECT_FALSE(covers(13, 2000, 128, 64, 64));
  EXPECT_FALSE(covers(13, 2000, 1025, 64, 64));
  AttentionPass small = pass_of({13, 2000, 0});
  small.edge = kSmallTile;
  EXPECT_EQ(hopper_kernel_of(problem_of(13 * 200, 64, 64), small), Kernel::hopper);
  AttentionBackward shared_keys = problem_of(13 * 200, 64, 64);
  shared_keys.k.head_stride = 0;
  EXPECT_EQ(hopper_kernel_of(shared_keys, pass_of({13, 2000, 0})), Kernel::hopper);
}

TEST(AttentionColumns, CoversFarWindowsForward) {
  const auto kernel = [](int32_t stride, int32_t reach, bool accumulate, int64_t v = 64) {
    AttentionForward f;
    f.q = f.k = problem_of(13 * 600, 64, v).q;
    f.v = f.y = problem_of(13 * 600, 64, v).v;
    AttentionPass pass = pass_of({stride, reach, 0});
    pass.accumulate = accumulate;
    return hopper_kernel_of(f, pass);
  };
  for (const int32_t stride : {1, 13}) {
    EXPECT_EQ(kernel(stride, 128, false), Kernel::hopper_band);
    EXPECT_EQ(kernel(stride, 129, false), Kernel::hopper_window);
    EXPECT_EQ(kernel(stride, 258, false), Kernel::hopper_column);
    EXPECT_EQ(kernel(stride, 512, false), Kernel::hopper_column);
    EXPECT_EQ(kernel(stride, 513, false), Kernel::hopper);
    EXPECT_EQ(kernel(stride, 258, true), Kernel::hopper);
    EXPECT_EQ(kernel(stride, 258, false, 72), Kernel::hopper);
  }
}

TEST(AttentionColumns, OnesOfManyTilesNeedScratch) {
  const auto scratch = [](const AttentionBackward& g, const AttentionPass& pass) {
    return attention::scratch_of(Kernel::hopper_column, attention::Problem::of(g), pass);
  };
  AttentionBackward g = problem_of(13 * 256, 64, 64);
  EXPECT_EQ(scratch(g, pass_of({13, 256, 0})), 0);
  EXPECT_EQ(hopper_kernel_of(g, pass_of({13, 256, 0})), Kernel::hopper_column);
  g = problem_of(13 * 257, 64, 64);
  EXPECT_EQ(scratch(g, pass_of({13, 257, 0})), 6 * 13 * 5 * 64 * 64);
  EXPECT_EQ(hopper_kernel_of(g, pass_of({13, 257, 0})), Kernel::hopper);
  g.scratch.data = &g;
  EXPECT_EQ(hopper_kernel_of(g, pass_of({13, 257, 0})), Kernel::hopper_column);
}

#ifdef WEFT_CUDA
using namespace attention_test;

template <class T>
void expect_columns(const PatternSpec& spec, const Sizes& size) {
  expect_agreement<T>(spec, size, [](Data<T>& x, const AttentionMaps& maps) {
    const Kernel kernel = hopper_kernel_of(x.forward(maps), maps.pass[maps.passes - 1]);
    return kernel == Kernel::hopper_column || kernel == Kernel::hopper_window;
  });
}

TEST(CudaAttentionColumns, Lengths) {
  for (const int64_t rows : {129, 192, 193, 255, 256, 257, 321, 450})
    expect_columns<bf16>({"strided", 16}, {1, rows * 16, 4, 16, 16});
  expect_columns<bf16>({"strided", 11}, {2, 200 * 11, 3, 64, 64});
  expect_columns<f16>({"strided", 64}, {1, 260 * 64, 1, 64, 64});
}

// More columns than a grid has blocks.
TEST(CudaAttentionColumns, Many) {
  expect_columns<bf16>({"strided", 12}, {3, 140 * 12, 4, 16, 16});
  expect_columns<bf16>({"strided", 12}, {3, 260 * 12, 4, 16, 16});
}

TEST(CudaAttentionColumns, AllHeadSizes) {
  for (const auto& [qk, v] : {std::pair{8, 8}, {72, 72}, {64, 128}, {128, 24}, {24, 48}}) {
    expect_columns<bf16>({"strided", 16}, {2, 140 * 16, 2, qk, v});
    expect_columns<f16>({"strided", 16}, {2, 140 * 16, 2, qk, v});
  }
}

TEST(CudaAttentionColumns, Windows) {
  for (const int64_t l : {129, 191, 192, 193, 256, 300, 512}) {
    expect_columns<bf16>({"local", l}, {2, 700, 2, 16, 16});
    expect_columns<f16>({"local", l}, {1, 600, 1, 64, 64});
  }
  expect_columns<bf16>({"local", 160}, {2, 1000, 20, 16, 16});  // more units than a grid has blocks
}

// A pass that adds to what a window left.
TEST(CudaAttentionColumns, Rests) {
  PatternSpec both{.kind = "merged"};
  both.of = {{"local", 16}, {"strided", 16}};
  for (const int64_t rows : {129, 256, 330}) {
    expect_columns<bf16>(both, {2, rows * 16, 2, 16, 16});
    expect_columns<f16>(both, {2, rows * 16, 2, 24, 24});
  }
  expect_columns<bf16>(both, {2, 150 * 16, 2, 64, 128});
}

TEST(CudaAttentionColumns, AThousandRunsGiveTheSameBits) {
  for (const int64_t rows : {200, 300}) {
    const Sizes size{1, rows * 16, 9, 64, 64};
    const GpuMaps maps(*make_pattern({"strided", 16}, 9), 9, size.time, 64, kTile);
    Data<bf16> x(size);
    run_on_gpu(x, maps.maps);
    OnGpu<bf16> d(x);
    const AttentionBackward backward = d.backward_with_scratch(maps.maps);
    const auto both = [&] {
      launch(gpu().queue, d.forward(maps.maps));
      launch(gpu().queue, backward);
    };
    EXPECT_EQ(runs_with_other_bits(both, d.y, d.lse, d.dq, d.dk_dv), 0) << rows;
  }
}

TEST(CudaAttentionColumns, ScratchThatIsTooSmallIsRefused) {
  const Sizes size{1, 300 * 16, 4, 16, 16};
  const GpuMaps maps(*make_pattern({"strided", 16}, 4), 4, size.time, 16, kTile);
  Data<bf16> x(size);
  OnGpu<bf16> d(x);
  launch(gpu().queue, d.forward(maps.maps));
  AttentionBackward g = d.backward_with_scratch(maps.maps);
  ASSERT_TRUE(g.scratch);
  --g.scratch.shape[0];
  EXPECT_THROW(launch(gpu().queue, g), Error);
}
#endif
}  // namespace
}  // namespace weft
