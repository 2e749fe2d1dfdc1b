// SPDX-License-Identifier: MIT
// Distribution augmentation: what is drawn, what becomes of an image, what the model is told.
#include "data/augment/augment.h"

#include "src/config/conditions.h"
#include "src/config/config.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace weft {
namespace {
constexpr ImageShape kShape = {4, 4, 3};

Config config_of(const ImageShape& shape) {
  Config config;
  config.model.vocab = 256;
  config.model.context = shape.tokens();
  config.model.position_axes = {shape.height, shape.width, shape.channels};
  config.train.batch = 8;
  config.seed = 3;
  return config;
}

// Every kind that reorders.
Config all_kinds(const ImageShape& shape = kShape) {
  Config config = config_of(shape);
  AugmentConfig& a = config.augment;
  a.rotation = a.color = a.transposition = a.reversal = a.flip = true;
  a.jigsaw = 2;
  a.random_order = 5;
  return config;
}

// Tokens that say where they are from.
std::vector<int32_t> counting(const ImageShape& shape) { return identity_order(shape.tokens()); }

struct Augmented {
  std::vector<int32_t> tokens, positions;
};

Augmented augmented(const Augmenter& augmenter, const AugmentChoice& choice,
                    const ImageShape& shape) {
  Augmented out{counting(shape),
                std::vector<int32_t>(static_cast<std::size_t>(shape.tokens()), -1)};
  augmenter.apply(choice, out.tokens, out.positions);
  return out;
}

AugmentChoice random_choice(const Config& config, std::mt19937& random) {
  AugmentChoice choice;
  for (const Condition& k : augmentations(config))
    choice[k.kind] = static_cast<int32_t>(random() % static_cast<unsigned>(k.values));
  choice.flip = config.augment.flip && random() % 2 == 1;
  return choice;
}

// The definition, step by step on a (row, column, channel) grid of square images.
std::vector<int32_t> by_hand(const AugmentChoice& c, const Config& config,
                             std::vector<int32_t> image) {
  const int64_t n = kShape.height;
  const auto step = [&](auto from) {
    const std::vector<int32_t> before = image;
    for (int64_t t = 0; t < kShape.tokens(); ++t)
      image[static_cast<std::size_t>(t)] =
          before[static_cast<std::size_t>(from(t / (3 * n), t / 3 % n, t % 3))];
  };
  const auto at = [&](int64_t row, int64_t column, int64_t channel) {
    return (row * n + column) * 3 + channel;
  };
  if (c.flip) step([&](auto r, auto q, auto h) { return at(r, n - 1 - q, h); });
  for (int i = 0; i < c[Augment::rotation]; ++i)
    step([&](auto r, auto q, auto h) { return at(n - 1 - q, r, h); });
  static constexpr int kColors[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                        {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  step([&](auto r, auto q, auto h) { return at(r, q, kColors[c[Augment::color]][h]); });
  if (c[Augment::transposition]) step([&](auto r, auto q, auto h) { return at(q, r, h); });
  if (c[Augment::reversal])
    step([&](auto r, auto q, auto h) { return at(n - 1 - r, n - 1 - q, h); });
  std::vector<int> tiles = {0, 1, 2, 3};
  for (int i = 0; i < c[Augment::jigsaw]; ++i) std::next_permutation(tiles.begin(), tiles.end());
  step([&](auto r, auto q, auto h) {
    const int tile = tiles[static_cast<std::size_t>(r / 2 * 2 + q / 2)];
    return at(tile / 2 * 2 + r % 2, tile % 2 * 2 + q % 2, h);
  });
  const int order = c[Augment::random_order];
  const std::vector<int64_t>& seeds = config.augment.random_order_seeds;
  if (order > 0) {
    const int64_t seed =
        order <= 4 ? seeds[static_cast<std::size_t>(order - 1)] : seeds[3] + order - 4;
    const Order from = random_order(kShape.tokens(), static_cast<uint64_t>(seed));
    step([&](auto r, auto q, auto h) { return from[static_cast<std::size_t>(at(r, q, h))]; });
  }
  return image;
}

TEST(Augment, IsTheDefinition) {
  const Config config = all_kinds();
  const Augmenter augmenter(config, kShape);
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const AugmentChoice choice = random_choice(config, random);
    const auto expected = by_hand(choice, config, counting(kShape));
    ASSERT_EQ(augmented(augmenter, choice, kShape).tokens, expected) << round;
    ASSERT_EQ(augmenter.source(choice), expected) << round;
    ASSERT_EQ(composed(expected, inverse(augmenter.source(choice))), counting(kShape))
        << "and back";
  }
}

TEST(Augment, PositionsFollowTheSubPixels) {
  Config config = all_kinds();
  std::mt19937 random(2);
  const Augmenter augmenter(config, kShape);
  EXPECT_TRUE(augmenter.moves_positions());
  for (int round = 0; round < 100; ++round) {
    AugmentChoice choice = random_choice(config, random);
    const Augmented out = augmented(augmenter, choice, kShape);
    // What was at (row, column, channel) of the flipped image has that position, wherever it is
    // now.
    choice = {.flip = choice.flip};
    const auto flipped = augmented(augmenter, choice, kShape).tokens;
    for (std::size_t t = 0; t < out.tokens.size(); ++t)
      ASSERT_EQ(out.tokens[t], flipped[static_cast<std::size_t>(out.positions[t])]);
  }
  config.augment.permute_positions = false;
  const Augmenter staying(config, kShape);
  EXPECT_FALSE(staying.moves_positions());
  EXPECT_EQ(augmented(staying, random_choice(config, random), kShape).positions, counting(kShape));
  Config values = config_of(kShape);
  values.augment.randaugment = 1;
  values.augment.flip = true;
  EXPECT_FALSE(Augmenter(values, kShape).moves_positions()) << "nothing that is used reorders";
}

TEST(Augment, NothingIsDoneByValueZero) {
  const Augmenter augmenter(all_kinds(), kShape);
  EXPECT_EQ(augmented(augmenter, {}, kShape).tokens, counting(kShape));
  EXPECT_EQ(augmented(augmenter, {}, kShape).positions, counting(kShape));
  const Augmenter none(config_of(kShape), kShape);
  EXPECT_FALSE(none.any());
  EXPECT_TRUE(none.conditions().empty());
  EXPECT_EQ(augmented(none, {}, kShape).tokens, counting(kShape));
  EXPECT_EQ(none.source({}), counting(kShape));
}

TEST(Augment, RandAugmentComesLastAndOnlyWhereDrawn) {
  Config config = all_kinds({8, 8, 3});
  config.augment.randaugment = 2;
  const Augmenter augmenter(config, {8, 8, 3});
  std::mt19937 random(3);
  int changed = 0;
  for (uint64_t key = 0; key < 50; ++key) {
    AugmentChoice choice = random_choice(config, random);
    choice.key = key;
    choice[Augment::randaugment] = 1;
    const Augmented with = augmented(augmenter, choice, {8, 8, 3});
    for (const int32_t token : with.tokens) ASSERT_TRUE(token >= 0 && token < 256);
    choice[Augment::randaugment] = 0;
    Augmented without = augmented(augmenter, choice, {8, 8, 3});
    EXPECT_EQ(with.positions, without.positions) << "values change, not places";
    changed += with.tokens != without.tokens ? 1 : 0;
    // The same operations on the image as it came out of the rest.
    AugmentChoice alone;
    alone.key = key;
    alone[Augment::randaugment] = 1;
    augmenter.apply(alone, without.tokens, {});
    EXPECT_EQ(with.tokens, without.tokens);
  }
  EXPECT_GT(changed, 40);
}

// Counts of values of a kind in n draws.
std::map<int, int> counts(const Augmenter& augmenter, Augment kind, int n, uint64_t seed) {
  std::map<int, int> seen;
  for (int i = 0; i < n; ++i) ++seen[augmenter.draw(seed, i)[kind]];
  return seen;
}

TEST(Augment, DrawsAreUniform) {
  const Config config = all_kinds();
  const Augmenter augmenter(config, kShape);
  // By degrees of freedom: what is exceeded once in 1000 seeds.
  const std::map<int64_t, double> bounds = {{1, 10.8}, {3, 16.3}, {5, 20.5}, {23, 49.7}};
  for (const Condition& k : augmentations(config)) {
    const auto seen = counts(augmenter, k.kind, 12000, 7);
    ASSERT_EQ(static_cast<int64_t>(seen.size()), k.values) << name_of(k.kind);
    const double expected = 12000.0 / static_cast<double>(k.values);
    double chi_square = 0;
    for (const auto& [value, n] : seen) chi_square += (n - expected) * (n - expected) / expected;
    EXPECT_LT(chi_square, bounds.at(k.values - 1)) << name_of(k.kind);
  }
  int flips = 0, together = 0, upper = 0;
  for (int i = 0; i < 12000; ++i) {
    const AugmentChoice choice = augmenter.draw(7, i);
    flips += choice.flip;
    together += choice[Augment::rotation] == 1 && choice[Augment::color] == 2;
    upper += static_cast<int>(choice.key >> 63);
  }
  EXPECT_NEAR(flips, 6000, 180);
  EXPECT_NEAR(upper, 6000, 180);
  EXPECT_NEAR(together, 500, 75) << "kinds are independent";
}

TEST(Augment, DrawsAreAPureFunctionOfSeedAndIndex) {
  const Augmenter augmenter(all_kinds(), kShape), again(all_kinds(), kShape);
  int differ_in_seed = 0;
  for (const int64_t index : {0L, 1L, 77L, 1L << 33}) {
    const AugmentChoice a = augmenter.draw(5, index), b = again.draw(5, index);
    EXPECT_EQ(a.value, b.value);
    EXPECT_EQ(a.flip, b.flip);
    EXPECT_EQ(a.key, b.key);
    differ_in_seed += augmenter.draw(6, index).key != a.key;
  }
  EXPECT_EQ(differ_in_seed, 4);
  EXPECT_NE(augmenter.draw(5, 1).key, augmenter.draw(5, 1 + (1L << 32)).key)
      << "all bits of the index count";
  // One kind draws the same whatever else is used.
  Config config = config_of(kShape);
  config.augment.jigsaw = 2;
  const Augmenter alone(config, kShape);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(alone.draw(5, i)[Augment::jigsaw], augmenter.draw(5, i)[Augment::jigsaw]);
    EXPECT_EQ(alone.draw(5, i)[Augment::rotation], 0) << "not used";
    EXPECT_FALSE(alone.draw(5, i).flip);
  }
}

TEST(Augment, RatesAreKept) {
  Config config = config_of(kShape);
  AugmentConfig& a = config.augment;
  a.rotation = a.color = a.transposition = true;
  a.unaugmented_rate = 0.3;
  const Augmenter augmenter(config, kShape);
  int untouched = 0;
  for (int i = 0; i < 20000; ++i) {
    const AugmentChoice c = augmenter.draw(1, i);
    untouched += c.value == AugmentChoice{}.value;
  }
  EXPECT_NEAR(untouched, 6000, 200);
  const auto colors = counts(augmenter, Augment::color, 20000, 1);
  const double same = std::cbrt(0.3);
  EXPECT_NEAR(colors.at(0), 20000 * same, 200);
  for (int value = 1; value < 6; ++value)
    EXPECT_NEAR(colors.at(value), 20000 * (1 - same) / 5, 130) << "the others share the rest";
  // RandAugment counts among the kinds, and has a rate of its own.
  a.randaugment = 1;
  a.randaugment_rate = 0.8;
  const Augmenter four(config, kShape);
  EXPECT_NEAR(counts(four, Augment::color, 20000, 1).at(0), 20000 * std::pow(0.3, 0.25), 200);
  EXPECT_NEAR(counts(four, Augment::randaugment, 20000, 1).at(1), 16000, 250);
  a.randaugment_rate = 1;
  EXPECT_EQ(counts(Augmenter(config, kShape), Augment::randaugment, 1000, 1).at(1), 1000);
}

TEST(Augment, RowsNameTheValues) {
  Config config = all_kinds();
  config.augment.randaugment = 1;
  const Augmenter augmenter(config, kShape);
  AugmentChoice choice;
  choice.value = {3, 5, 1, 0, 23, 1, 4, 0};
  std::vector<int32_t> rows(augmenter.conditions().size());
  augmenter.rows(choice, rows);
  // First rows: rotation 0, color 4, transposition 10, reversal 12, jigsaw 14, randaugment 38,
  // orders 40.
  EXPECT_EQ(rows, (std::vector<int32_t>{3, 9, 11, 12, 37, 39, 44}));
  config.augment.conditional = false;
  const Augmenter silent(config, kShape);
  EXPECT_TRUE(silent.conditions().empty());
  EXPECT_TRUE(silent.any());
  EXPECT_NE(augmented(silent, choice, kShape).tokens, counting(kShape))
      << "transformed all the same";
}

TEST(Augment, ErrorsNameTheKeys) {
  const auto error = [](const ImageShape& shape, auto change) {
    Config config = config_of(shape);
    change(config);
    return error_of([&] { Augmenter(config, shape); });
  };
  EXPECT_EQ(error({4, 6, 3}, [](Config& c) { c.augment.rotation = true; }),
            "augment.rotation: images must be square, these are 4 x 6 x 3; augment.reversal works "
            "for any");
  EXPECT_CONTAINS(error({4, 6, 3}, [](Config& c) { c.augment.transposition = true; }),
                  "augment.transposition: images must be square");
  EXPECT_EQ(error({4, 6, 3}, [](Config& c) { c.augment.reversal = c.augment.flip = true; }), "");
  EXPECT_EQ(error({4, 6, 3}, [](Config& c) { c.augment.jigsaw = 2; }), "");
  EXPECT_EQ(error({4, 6, 3}, [](Config& c) { c.augment.jigsaw = 3; }),
            "augment.jigsaw: 3 does not divide the sides of images of 4 x 6 x 3");
  for (const ImageShape odd : {ImageShape{4, 5, 3}, {5, 4, 3}})
    EXPECT_CONTAINS(error(odd, [](Config& c) { c.augment.jigsaw = 2; }),
                    "augment.jigsaw: 2 does not divide");
  EXPECT_EQ(error({4, 6, 3},
                  [](Config& c) {
                    c.augment.flip = true;
                    c.augment.random_order_seeds = {};
                  }),
            "")
      << "unused seeds";
  EXPECT_EQ(error({4, 4, 1}, [](Config& c) { c.augment.color = true; }),
            "augment.color: images must have 3 channels, these are 4 x 4 x 1");
  EXPECT_CONTAINS(error({4, 4, 1}, [](Config& c) { c.augment.randaugment = 1; }),
                  "augment.randaugment: images must have 3 channels");
  EXPECT_CONTAINS(error({4, 4, 3},
                        [](Config& c) {
                          c.augment.randaugment = 1;
                          c.model.vocab = 64;
                        }),
                  "augment.randaugment: wants images of 8 bits, model.vocab 256, not 64");
  EXPECT_CONTAINS(error({4, 4, 3},
                        [](Config& c) {
                          c.augment.random_order = 2;
                          c.augment.random_order_seeds = {};
                        }),
                  "augment.random_order_seeds: at least one seed");
  EXPECT_CONTAINS(error({}, [](Config& c) { c.augment.flip = true; }), "only images are augmented");
  const Augmenter augmenter(all_kinds(), kShape);
  AugmentChoice choice;
  choice[Augment::color] = 6;
  EXPECT_CONTAINS(error_of([&] { augmenter.source(choice); }),
                  "augmentation color has values 0 to 5, not 6");
}

// Sixteen images of 32 x 32, with all kinds: a few milliseconds of training time would be too much.
// A wide bound, for machines that do other things.
TEST(Augment, IsQuick) {
  const ImageShape shape = {32, 32, 3};
  Config config = all_kinds(shape);
  const Augmenter augmenter(config, shape);
  std::vector<int32_t> tokens = counting(shape), positions = tokens;
  double best = 1;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 16; ++i) augmenter.apply(augmenter.draw(1, i), tokens, positions);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  RecordProperty("microseconds", static_cast<int>(best * 1e6));
  EXPECT_LT(best, 0.02);
}
}  // namespace
}  // namespace weft
