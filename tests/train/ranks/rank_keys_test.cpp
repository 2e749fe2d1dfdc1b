// SPDX-License-Identifier: MIT
// Keys of a config that count for several processes alone.
#include "tests/train/keys_testing.h"

namespace weft {
namespace {
const Rows kRows = {
    {"train.reduce_dtype",
     {"bf16", weights, {}, "TrainingRanks.SumsInBf16AreCloseAndTheSameOnEveryRank"}},
    {"train.bucket_mb", {"0", weights, {}, "sizes of sums of several processes; GradientBuckets"}},
    {"train.shard_optimizer", {"true", weights, {}, "ShardedOptimizer.LossesAreThoseOfOneProcess"}},
};

using KeysOfRanks = EveryKey;

TEST_F(KeysOfRanks, HaveARowHereThatIsAnotherValue) {
  for (const auto& [key, value] : values_of(Config{}))
    EXPECT_EQ(kRows.contains(key), part_of_key(key) == "ranks") << key;
  expect_other_values(kRows);
}
}  // namespace
}  // namespace weft
