// SPDX-License-Identifier: MIT
// The plan of decoding by clusters: every weight is packed once, and no list loses a key.
#include "kernels/sampling/decode/cluster_plan.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace weft::decode_cluster {
namespace {
// Counts the visits to each element of a matrix.
class Visits {
 public:
  Visits(int rows, int columns)
      : columns_(columns),
        times_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {}

  void add(int row, int column) {
    ASSERT_GE(row, 0);
    ASSERT_GE(column, 0);
    ASSERT_LT(column, columns_);
    ++times_.at(static_cast<std::size_t>(row * columns_ + column));
  }

  void expect_one_each() const {
    for (std::size_t i = 0; i < times_.size(); ++i) ASSERT_EQ(times_[i], 1) << i;
  }

 private:
  int columns_;
  std::vector<int> times_;
};

template <class P, int kWidth>
void expect_whole() {
  Visits qkv(3 * kWidth, kWidth), proj(kWidth, kWidth), up(4 * kWidth, kWidth),
      down(kWidth, 4 * kWidth);
  for (int head = 0; head < P::kHeads; ++head)
    for (int rank = 0; rank < kRanks; ++rank) {
      const int unit = (head * kRanks + rank) * kHidden;
      for (int i = 0; i < kQkvColumns * kWidth; ++i)
        qkv.add(P::qkv_row(head, rank, P::qkv_column(i)), P::qkv_inner(i));
      for (int i = 0; i < P::kOwned * kHeadSize; ++i)
        proj.add(rank * P::kOwned + P::proj_column(i), head * kHeadSize + P::proj_feature(i));
      for (int i = 0; i < kHidden * kWidth; ++i) up.add(unit + P::up_column(i), P::up_inner(i));
      for (int i = 0; i < kHidden * kWidth; ++i)
        down.add(P::down_column(i), unit + P::down_unit(i));
    }
  for (const Visits* visits : {&qkv, &proj, &up, &down}) visits->expect_one_each();
  EXPECT_EQ(P::kBytes, 2 * kConstantsBytes + 12 * kWidth * kWidth * 2 / P::kBlocks);
  EXPECT_EQ(P::kBytes % 128, 0);
}

TEST(DecodeClusters, EveryWeightIsPackedOnce) {
  expect_whole<Packing<256>, 256>();
  expect_whole<Packing<512>, 512>();
}

TEST(DecodeClusters, RanksShareTheKeys) {
  for (const int count : {0, 1, 7, 8, 9, 385, 3073, 1 << 24}) {
    EXPECT_EQ(first_of(0, count), 0);
    EXPECT_EQ(first_of(kRanks, count), count);
    for (int rank = 0; rank < kRanks; ++rank) {
      const int keys = first_of(rank + 1, count) - first_of(rank, count);
      EXPECT_GE(keys, count / kRanks);
      EXPECT_LE(keys, count / kRanks + 1);
    }
  }
}

TEST(DecodeClusters, MemoryIsAligned) {
  for (const int rows : {1, 2, 3, 4}) {
    const Prepared at(512, 30, rows * Packing<512>::kExchangeWords, Packing<512>::kBytes);
    EXPECT_EQ(at.set_words, int64_t{2} * 30 * rows * Packing<512>::kExchangeWords);
    EXPECT_EQ(at.exchange % 128, 0);
    EXPECT_EQ(at.weights % 128, 0);
    EXPECT_EQ(at.bytes - at.weights, int64_t{30} * Packing<512>::kBlocks * Packing<512>::kBytes);
  }
}
}  // namespace
}  // namespace weft::decode_cluster
