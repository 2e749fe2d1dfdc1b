// SPDX-License-Identifier: MIT
// Passes that are a band, in every form that covers them: lengths and strides at the edges of
// tiles, columns that share tiles, windows of every kind, heads of all sizes.
#include <algorithm>
#include <utility>
#include <vector>
#ifdef WEFT_CUDA
#include "tests/kernels/attention/attention_gpu.h"

#include <gtest/gtest.h>

namespace weft {
namespace {
using namespace attention_test;

PatternSpec merged(std::vector<PatternSpec> of) {
  PatternSpec spec{.kind = "merged"};
  spec.of = std::move(of);
  return spec;
}

template <class T>
void expect_band(const PatternSpec& spec, const Sizes& size) {
  const int heads = static_cast<int>(size.heads);
  const auto pattern = make_pattern(spec, heads);
  const HostMaps host(*pattern, heads, size.lengths(), std::max(size.qk, size.v), kTile);
  Data<T> x(size);
  for (int p = 0; p < host.maps.passes; ++p)
    EXPECT_EQ(hopper_kernel_of(x.forward(host.maps), host.maps.pass[p]),
              attention::Kernel::hopper_band)
        << pattern->name() << ", pass " << p;
  expect_agreement<T>(*pattern, {size, kTile}, pattern->name());
}

TEST(CudaAttentionBand, Windows) {
  for (const int64_t l : {1, 8, 64, 65, 66, 100, 127, 128})
    for (const int64_t n : {1, 65, 129, 450}) expect_band<bf16>({"local", l}, {1, n, 3, 64, 64});
  expect_band<bf16>({"local", 128}, {1, 6000, 1, 64, 64});
  // more runs than there are multiprocessors
  expect_band<bf16>({"local", 128}, {7, 1000, 21, 16, 16});
}

// Three tiles of keys.
TEST(CudaAttentionBand, WindowsOfWideHeads) {
  for (const int64_t l : {66, 96, 127, 128})
    for (const int64_t n : {129, 192, 450}) expect_band<bf16>({"local", l}, {1, n, 2, 128, 128});
  expect_band<f16>({"local", 100}, {2, 333, 1, 72, 24});
  expect_band<bf16>({"local", 128}, {1, 6000, 1, 128, 64});
  // more runs than there are multiprocessors
  expect_band<bf16>({"local", 128}, {7, 1000, 21, 72, 16});
  expect_band<bf16>(merged({{"local", 7}, {"local", 100}}), {1, 300, 3, 128, 128});
  expect_band<bf16>(merged({{"local", 100}, {"strided", 12}}), {1, 1200, 2, 128, 128});
}

TEST(CudaAttentionBand, Columns) {
  for (const int64_t rows : {1, 5, 8, 9, 16, 17, 24, 32, 33, 63, 64, 65, 96, 127, 128})
    for (const int64_t l : {3, 8}) expect_band<bf16>({"strided", l}, {1, rows * l, 3, 64, 64});
  expect_band<bf16>({"strided", 128}, {5, 24 * 128, 2, 64, 128});
  expect_band<bf16>({"strided", 96}, {3, 32 * 96, 2, 128, 128});
  expect_band<bf16>({"strided", 128}, {1, 96 * 128, 3, 64, 64});
}

// What a window leaves of a column, and of a wider window.
TEST(CudaAttentionBand, Rests) {
  for (const int64_t l : {2, 16, 30})
    for (const int64_t rows : {1, 2, 7, 24, 40, 64, 96})
      expect_band<bf16>(merged({{"local", l}, {"strided", l}}), {2, rows * l, 3, 64, 64});
  for (const auto& [near, far] :
       {std::pair{1, 2}, {7, 100}, {64, 128}, {65, 66}, {100, 128}, {127, 128}})
    for (const int64_t n : {65, 300})
      expect_band<bf16>(merged({{"local", near}, {"local", far}}), {1, n, 3, 64, 64});
  for (const int64_t n : {300, 1200})
    expect_band<bf16>(merged({{"local", 100}, {"strided", 12}}), {1, n, 2, 64, 64});
  expect_band<bf16>(merged({{"local", 128}, {"strided", 128}}), {3, 24 * 128, 3, 64, 128});
}

template <class T>
void for_all_head_sizes() {
  for (const auto& [qk, v] : {std::pair{8, 8},
                              {24, 24},
                              {64, 64},
                              {72, 72},
                              {128, 128},
                              {64, 128},
                              {16, 128},
                              {128, 64},
                              {128, 24},
                              {24, 48}}) {
    expect_band<T>({"local", 70}, {2, 330, 2, qk, v});
    expect_band<T>({"strided", 5}, {1, 96 * 5, 3, qk, v});
    expect_band<T>({"strided", 5}, {1, 24 * 5, 3, qk, v});
    expect_band<T>(merged({{"local", 12}, {"strided", 12}}), {1, 70 * 12, 1, qk, v});
  }
}

TEST(CudaAttentionBand, Float16Sizes) { for_all_head_sizes<f16>(); }

TEST(CudaAttentionBand, BFloat16Sizes) { for_all_head_sizes<bf16>(); }

// Forward a thousand times, where blocks take several runs each.
TEST(CudaAttentionBand, AThousandRunsGiveTheSameBits) {
  for (const PatternSpec& spec : {PatternSpec{"local", 128}, PatternSpec{"strided", 16},
                                  merged({{"local", 16}, {"strided", 16}})}) {
    const Sizes size{1, 96 * 16, 9, 16, 16};
    const auto pattern = make_pattern(spec, 9);
    const GpuMaps maps(*pattern, 9, size.lengths(), 16);
    Data<bf16> x(size);
    run_on_gpu(x, maps.maps);
    const OnGpu<bf16> d(x);
    const auto forward = [&] { launch(gpu().queue, d.forward(maps.maps)); };
    EXPECT_EQ(runs_with_other_bits(forward, d.y, d.lse), 0) << pattern->name();
  }
}
}  // namespace
}  // namespace weft
#endif
