// SPDX-License-Identifier: MIT
// Keys of a config that Muon reads.
#include "tests/train/keys_testing.h"

#include <string>
#include <vector>

namespace weft {
namespace {
const std::vector<std::string> kNeeds{"train.optimizer=muon"};
const Rows kRows{
    {"train.optimizer", {"muon"}},
    {"train.muon_learning_rate", {"0.05", weights, kNeeds}},
    {"train.muon_momentum", {"0.5", weights, kNeeds}},
    {"train.muon_weight_decay", {"10", weights, kNeeds}},
};

using KeysOfMuon = EveryKey;

TEST_F(KeysOfMuon, HaveARowHereThatIsAnotherValue) {
  for (const auto& [key, value] : values_of(Config{}))
    EXPECT_TRUE(kRows.contains(key) || part_of_key(key) != "muon") << key;
  expect_other_values(kRows);
}

TEST_F(KeysOfMuon, ShowInARun) { expect_shown_in_a_run(kRows); }
}  // namespace
}  // namespace weft
