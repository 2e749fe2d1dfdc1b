// SPDX-License-Identifier: MIT
// Orders of sub-pixels: small images turned by hand, bijections and inverses.
#include "data/augment/augment.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr ImageShape kSquare = {6, 6, 3}, kWide = {4, 6, 3}, kGrey = {3, 3, 1};

void expect_bijection(const Order& order, int64_t tokens, const std::string& what) {
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, identity_order(tokens)) << what;
  EXPECT_EQ(composed(order, inverse(order)), identity_order(tokens)) << what;
  EXPECT_EQ(composed(inverse(order), order), identity_order(tokens)) << what;
}

// 0 1 2
// 3 4 5
// 6 7 8
TEST(Transforms, OfNinePixelsByHand) {
  EXPECT_EQ(rotation_order(kGrey, 0), identity_order(9));
  EXPECT_EQ(rotation_order(kGrey, 1), (Order{6, 3, 0, 7, 4, 1, 8, 5, 2})) << "clockwise";
  EXPECT_EQ(rotation_order(kGrey, 2), (Order{8, 7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(rotation_order(kGrey, 3), (Order{2, 5, 8, 1, 4, 7, 0, 3, 6}));
  EXPECT_EQ(transposition_order(kGrey), (Order{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  EXPECT_EQ(flip_order(kGrey), (Order{2, 1, 0, 5, 4, 3, 8, 7, 6}));
  EXPECT_EQ(flip_order({1, 2, 3}), (Order{3, 4, 5, 0, 1, 2})) << "channels stay";
  EXPECT_EQ(rotation_order({1, 2, 3}, 2), (Order{3, 4, 5, 0, 1, 2})) << "channels stay";
}

TEST(Transforms, OrdersOfColours) {
  const std::vector<Order> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (std::size_t value = 0; value < 6; ++value) {
    EXPECT_EQ(color_order({1, 1, 3}, static_cast<int64_t>(value)), orders[value]);
    const Order two = color_order({2, 1, 3}, static_cast<int64_t>(value));
    for (std::size_t t = 0; t < 6; ++t)
      EXPECT_EQ(two[t], static_cast<int32_t>(t / 3 * 3) + orders[value][t % 3]);
  }
}

// Tiles 0 1 over 2 3, of 1 row and 2 columns each.
TEST(Transforms, JigsawsAreLexicographic) {
  const ImageShape shape = {2, 4, 1};
  EXPECT_EQ(jigsaw_order(shape, 2, 0), identity_order(8));
  EXPECT_EQ(jigsaw_order(shape, 2, 1), (Order{0, 1, 2, 3, 6, 7, 4, 5})) << "0 1 3 2";
  EXPECT_EQ(jigsaw_order(shape, 2, 9), (Order{2, 3, 4, 5, 6, 7, 0, 1})) << "1 2 3 0";
  EXPECT_EQ(jigsaw_order(shape, 2, 23), (Order{6, 7, 4, 5, 2, 3, 0, 1})) << "3 2 1 0";
  EXPECT_EQ(jigsaw_order({3, 3, 1}, 3, 362879), rotation_order(kGrey, 2))
      << "the last of nine tiles";
  // The orders of single pixels are the permutations themselves: the library's come in the same
  // order.
  Order permutation = identity_order(9);
  for (int64_t value = 0; value < 5000; ++value) {
    ASSERT_EQ(jigsaw_order({3, 3, 1}, 3, value), permutation) << value;
    std::next_permutation(permutation.begin(), permutation.end());
  }
}

// Tiles of several rows keep their pixels together: the definition, with a grid of tiles written
// out.
TEST(Transforms, JigsawTilesAreMovedWhole) {
  std::vector<int64_t> tiles = {0, 1, 2, 3};
  int64_t value = 0;
  do {
    const Order order = jigsaw_order(kWide, 2, value++);
    for (int64_t t = 0; t < kWide.tokens(); ++t) {
      const int64_t row = t / 18, column = t / 3 % 6, channel = t % 3;
      const int64_t tile = tiles[static_cast<std::size_t>(row / 2 * 2 + column / 3)];
      const int64_t from_row = tile / 2 * 2 + row % 2, from_column = tile % 2 * 3 + column % 3;
      ASSERT_EQ(order[static_cast<std::size_t>(t)], (from_row * 6 + from_column) * 3 + channel);
    }
  } while (std::next_permutation(tiles.begin(), tiles.end()));
  EXPECT_EQ(value, 24);
}

TEST(Transforms, AreBijections) {
  for (int64_t quarters = 0; quarters < 4; ++quarters)
    expect_bijection(rotation_order(kSquare, quarters), 108, str("rotation ", quarters));
  for (int64_t value = 0; value < 6; ++value)
    expect_bijection(color_order(kWide, value), 72, str("colours ", value));
  for (int64_t value = 0; value < 24; ++value)
    expect_bijection(jigsaw_order(kWide, 2, value), 72, str("jigsaw ", value));
  for (int64_t value = 0; value < 362880; value += 7919)
    expect_bijection(jigsaw_order(kSquare, 3, value), 108, str("jigsaw of nine ", value));
  for (uint64_t seed = 0; seed < 20; ++seed)
    expect_bijection(random_order(72, seed), 72, str("random ", seed));
  expect_bijection(random_order(1, 5), 1, "one token");
  expect_bijection(transposition_order(kSquare), 108, "transposition");
  expect_bijection(flip_order(kWide), 72, "flip");
}

TEST(Transforms, InversesOfTurns) {
  EXPECT_EQ(inverse(rotation_order(kSquare, 1)), rotation_order(kSquare, 3));
  EXPECT_EQ(inverse(rotation_order(kWide, 2)), rotation_order(kWide, 2));
  EXPECT_EQ(inverse(transposition_order(kSquare)), transposition_order(kSquare));
  EXPECT_EQ(inverse(color_order(kWide, 3)), color_order(kWide, 4)) << "the two cycles";
  EXPECT_EQ(composed(rotation_order(kSquare, 1), rotation_order(kSquare, 2)),
            rotation_order(kSquare, 3));
  // `first`, then `second`: turned clockwise and then transposed is turned upside down.
  EXPECT_EQ(composed(rotation_order(kGrey, 1), transposition_order(kGrey)),
            (Order{6, 7, 8, 3, 4, 5, 0, 1, 2}));
}

TEST(Transforms, RandomOrdersAreUniformAndFixed) {
  EXPECT_EQ(random_order(3072, 42), random_order(3072, 42));
  EXPECT_NE(random_order(3072, 42), random_order(3072, 314));
  // Written down once: an order is part of what a model has learned.
  EXPECT_EQ(random_order(8, 42), (Order{3, 6, 5, 1, 0, 4, 7, 2}));
  std::array<int, 24> seen{};
  for (uint64_t seed = 0; seed < 2400; ++seed) {
    const Order order = random_order(4, seed);
    int64_t value = 0;
    while (jigsaw_order({2, 2, 1}, 2, value) != order) ++value;
    ++seen[static_cast<std::size_t>(value)];
  }
  double chi_square = 0;
  for (const int n : seen) chi_square += (n - 100.0) * (n - 100.0) / 100;
  EXPECT_LT(chi_square, 49.8);  // 23 degrees of freedom: exceeded once in 1000 seeds
}

TEST(Transforms, Errors) {
  EXPECT_CONTAINS(error_of([] { rotation_order(kWide, 1); }), "image of 4 x 6, which is no square");
  EXPECT_CONTAINS(error_of([] { transposition_order(kWide); }),
                  "image of 4 x 6, which is no square");
  EXPECT_CONTAINS(error_of([] { color_order(kGrey, 1); }), "3 channels, not 1");
  EXPECT_CONTAINS(error_of([] { color_order(kWide, 6); }), "permutation 6 of 3 things");
  EXPECT_CONTAINS(error_of([] { jigsaw_order(kWide, 3, 0); }), "3 x 3 tiles of an image of 4 x 6");
  EXPECT_CONTAINS(error_of([] { jigsaw_order(kWide, 2, 24); }), "permutation 24 of 4 things");
}
}  // namespace
}  // namespace weft
