// SPDX-License-Identifier: MIT
// A store takes what fits of a file of weights, or says by name what does not.
#include "tests/src/files/small_store.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(TakeWeights, WhatFitsIsTakenAndTheRestStays) {
  const TempDir dir;
  SmallStore there(
      {{"position.0", {3, 4}}, {"position.1", {2, 4}}, {"blocks.0.w", {5, 4}}, {"old", {2}}});
  save_checkpoint(dir / "a.h5", *there.device, there.store, {}, "x: 1");
  const Parameters wanted = {{"position.0", {6, 4}},
                             {"position.1", {2, 4}},
                             {"blocks.0.w", {5, 4}},
                             {"blocks.1.w", {5, 4}}};
  SmallStore here(wanted, 2, true);
  const SmallStore fresh(wanted, 2, true);
  const TakenWeights result = take_weights(open_weights(dir / "a.h5"), *here.device, here.store);
  EXPECT_EQ(result.taken, (std::vector<std::string>{"position.1", "blocks.0.w"}));
  EXPECT_EQ(result.extended, std::vector<std::string>{"position.0"});
  EXPECT_EQ(result.drawn, std::vector<std::string>{"blocks.1.w"});
  EXPECT_EQ(result.unused, std::vector<std::string>{"old"});
  for (const Tensor* block : {&here.store.master(), &here.store.ema()}) {
    EXPECT_EQ(here.bits(*block, 1), there.bits(1));
    EXPECT_EQ(here.bits(*block, 2), there.bits(2));
    EXPECT_EQ(here.bits(*block, 3), fresh.bits(3));
    std::vector<uint32_t> rows = fresh.bits(0);
    std::ranges::copy(there.bits(0), rows.begin());
    EXPECT_EQ(here.bits(*block, 0), rows);
  }
  const auto refused = [&](const Parameters& other) {
    SmallStore model(other, 3);
    const auto before = model.bits(0);
    const std::string text =
        error_of([&] { take_weights(open_weights(dir / "a.h5"), *model.device, model.store); });
    EXPECT_EQ(model.bits(0), before);
    return text;
  };
  EXPECT_CONTAINS(refused({{"position.0", {3, 4}}, {"position.1", {4, 4}}}),
                  "position.1 is (2, 4) there and (4, 4) here; of position tables only position.0 "
                  "may get more rows");
  EXPECT_CONTAINS(refused({{"position.0", {2, 4}}, {"position.1", {2, 4}}}),
                  "position.0 is (3, 4) there and (2, 4) here");
  EXPECT_CONTAINS(refused({{"position.0", {6, 4}}}),
                  "has position tables of 2 axes, the model has 1");
  EXPECT_CONTAINS(refused({{"blocks.0.w", {6, 4}}}), "blocks.0.w is (5, 4) there and (6, 4) here");
}
}  // namespace
}  // namespace weft
