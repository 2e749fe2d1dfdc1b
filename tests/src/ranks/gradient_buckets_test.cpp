// SPDX-License-Identifier: MIT
// Buckets cover the gradient block once, in the order in which a backward pass completes it.
#include "src/ranks/sharding.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kBlocks = 6, kWeight = 64, kEmbedding = 24, kTail = 16 * kBlocks;

// An embedding, blocks of two weights and a bias, and a last weight.
struct Store {
  ParameterStore store;
  std::vector<Param> firsts;  // of each block
  std::unique_ptr<Device> device = make_device("cpu");

  Store() {
    store.add("embedding", {3, 8}, Init::normal(1));
    for (int64_t i = 0; i < kBlocks; ++i) {
      firsts.push_back(store.add(str("a", i), {4, 8}, Init::normal(1)));
      store.add(str("bias", i), {16}, Init::constant(0));
      store.add(str("b", i), {4, 8}, Init::normal(1));
    }
    store.add("output", {2, 8}, Init::normal(1));
    store.allocate(*device, DType::f32, 1, true, false);
  }

  // The ranges of a whole backward pass; those of marks alone in `marked`.
  std::vector<GradientRange> ranges(int64_t least, std::size_t& marked) const {
    GradientBuckets buckets(store, least);
    std::vector<GradientRange> all;
    for (int pass = 0; pass < 2; ++pass) {  // the second as the first
      std::vector<GradientRange> now;
      buckets.begin();
      for (int64_t i = kBlocks - 1; i >= 0; --i)
        if (const auto range = buckets.passed(firsts[static_cast<std::size_t>(i)].index);
            range.size() > 0)
          now.push_back(range);
      marked = now.size();
      for (const GradientRange& range : buckets.rest()) now.push_back(range);
      if (pass == 1) {
        EXPECT_EQ(now, all);
      }
      all = now;
    }
    return all;
  }
};

TEST(GradientBuckets, CoverEveryElementOnceWhateverTheirSize) {
  const Store store;
  for (const int64_t least : {0, 1, 64, 65, 100, 128, 200, 1000, 1000000}) {
    SCOPED_TRACE(least);
    std::size_t marked = 0;
    std::vector<GradientRange> ranges = store.ranges(least, marked);
    for (std::size_t i = 1; i < marked; ++i)
      EXPECT_EQ(ranges[i].end, ranges[i - 1].begin) << "from the last to the first";
    std::sort(ranges.begin(), ranges.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    int64_t at = 0;
    for (const GradientRange& range : ranges) {
      EXPECT_EQ(range.begin, at);
      EXPECT_EQ(range.begin % 8, 0);
      at = range.end;
    }
    EXPECT_EQ(at, store.store.gradients().size());
  }
}

TEST(GradientBuckets, AreWholeBlocksAndTaper) {
  const Store store;
  std::size_t marked = 0;
  const int64_t output = 16, first = kEmbedding, end = first + kBlocks * kWeight + output;
  EXPECT_EQ(store.ranges(2 * kWeight, marked),
            (std::vector<GradientRange>{{first + 4 * kWeight, end},
                                        {first + 2 * kWeight, first + 4 * kWeight},
                                        {first, first + 2 * kWeight},
                                        {0, first},
                                        {end, end + kTail}}));
  // However large: as much as is left to come is enough.
  EXPECT_EQ(store.ranges(1000 * kWeight, marked),
            (std::vector<GradientRange>{{first + 2 * kWeight, end},
                                        {first, first + 2 * kWeight},
                                        {0, first},
                                        {end, end + kTail}}));
  EXPECT_EQ(marked, 2u);
  store.ranges(1, marked);
  EXPECT_EQ(marked, static_cast<std::size_t>(kBlocks));
  EXPECT_EQ(store.ranges(0, marked), (std::vector<GradientRange>{{0, end + kTail}}));
  EXPECT_EQ(marked, 0u);
}
}  // namespace
}  // namespace weft
