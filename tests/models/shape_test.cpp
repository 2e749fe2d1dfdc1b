// SPDX-License-Identifier: MIT
// Patterns of the layers: the configured list, cycled.
#include "models/model.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/patterns/pattern.h"

#include <gtest/gtest.h>

namespace weft {
namespace {
TEST(Shape, PatternsAreCycledOverTheLayers) {
  const Config config = parse_config(
      "model:\n  layers: 6\n  attention:\n  - {kind: strided, stride: 8}\n  - {kind: local, "
      "stride: 4}\n"
      "  - {kind: local, stride: 4}\n  - {kind: local, stride: 4}\n",
      "a.yaml");
  const auto patterns = layer_patterns(config.model);
  ASSERT_EQ(patterns.size(), 6u);
  for (const int layer : {0, 4}) EXPECT_EQ(patterns[layer]->name(), "strided(stride 8)") << layer;
  for (const int layer : {1, 2, 3, 5})
    EXPECT_EQ(patterns[layer]->name(), "local(stride 4)") << layer;
  EXPECT_EQ(patterns[1].get(), patterns[3].get()) << "equal patterns are one object";
}

TEST(Shape, UnionsAndHeadsAreCycledLikeOthers) {
  const Config config = parse_config(
      "model:\n  layers: 3\n  attention:\n"
      "  - {kind: merged, of: [{kind: local, stride: 128}, {kind: strided, stride: 128}]}\n"
      "  - {kind: heads, of: [{kind: fixed, stride: 128, c: 32}, {kind: local, stride: 64}]}\n",
      "a.yaml");
  const auto patterns = layer_patterns(config.model);
  EXPECT_EQ(patterns[0]->name(), "merged(local(stride 128), strided(stride 128))");
  EXPECT_EQ(patterns[1]->groups(8), 2);
  EXPECT_EQ(patterns[2].get(), patterns[0].get());
}
}  // namespace
}  // namespace weft
