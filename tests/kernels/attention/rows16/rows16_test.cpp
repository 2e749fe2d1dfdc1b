// SPDX-License-Identifier: MIT
// Where tiles of 16 rows run, and where tables have them.
#include "kernels/attention/select.h"
#include "kernels/forms.h"
#include "src/patterns/packed_maps.h"
#include "src/patterns/pattern.h"
#include "tests/kernels/attention/attention_case.h"

#include <gtest/gtest.h>

namespace weft {
namespace {
using attention::Kernel, attention::Problem;

Kernel selected(const Problem& problem, int compute_capability, const Band& band = {}) {
  AttentionPass pass = attention_test::pass_of(band);
  pass.edge = kSmallTile;
  return attention::select(problem, pass, compute_capability);
}

TEST(Rows16, SmallTilesRunOnTensorCores) {
  Problem x{.dtype = DType::bf16, .time = 1 << 20, .qk_size = 64, .v_size = 64};
  EXPECT_EQ(selected(x, 80), Kernel::general_small_tiles);
  EXPECT_EQ(selected(x, 90), Kernel::general_small_tiles);
  if (kBuiltForSm90a && attention::added_kernel(Kernel::hopper_band)) {
    EXPECT_EQ(selected(x, 90, {1, 128, 0}), Kernel::hopper_band);
  }
  x.segments = true;
  EXPECT_EQ(selected(x, 90, {1, 128, 0}), Kernel::general_small_tiles);
  x.dtype = DType::f16, x.qk_size = 8, x.v_size = 256;
  EXPECT_EQ(selected(x, 89), Kernel::general_small_tiles);
  x.dtype = DType::f32;
  EXPECT_EQ(selected(x, 89), Kernel::simple);
}

TEST(Rows16, TheTextNamesThem) {
  AttentionBackward g = attention_test::problem_of(300, 64, 64);
  AttentionForward f;
  f.q = g.q, f.k = g.k, f.v = g.v, f.y = g.y;
  f.maps.passes = 1, g.maps.passes = 2;
  g.maps.pass[1].edge = kSmallTile;
  EXPECT_EQ(attention::kernels_text(f, g, 80), "general; backward general + general/small_tiles");
}

TEST(Rows16, EdgeFollowsTheWaste) {
  const auto edge = [](const PatternSpec& spec, int64_t n, int64_t head_size = 64) {
    return build_best_tables(*make_pattern(spec, 1), 0, n, head_size).edge;
  };
  EXPECT_EQ(edge({"fixed", 128, 8}, 12288), kTile);
  // 2 small tiles a row of tiles instead of 2 large ones
  EXPECT_EQ(edge({"local", 16}, 12288), kSmallTile);
  EXPECT_EQ(edge({"strided", 128}, 2048), kSmallTile);  // columns of 16
  EXPECT_EQ(edge({"strided", 128}, 12288, 128), kTile);
  EXPECT_EQ(edge({"strided", 128}, 12288, 136), kSmallTile);
}
}  // namespace
}  // namespace weft
