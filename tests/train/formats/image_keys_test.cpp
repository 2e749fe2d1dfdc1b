// SPDX-License-Identifier: MIT
// Every key of images, as tests/train/keys_test.cpp has those of the core.
#include "tests/train/formats/image_training.h"
#include "tests/train/keys_testing.h"

#include <string>
#include <vector>

namespace weft {
namespace {
const std::vector<std::string> kRotated{"augment.rotation=true", "train.batch=16"};
const std::vector<std::string> kOrders{"augment.random_order=2", "train.batch=16"};
const std::vector<std::string> kRand{"augment.randaugment=2", "augment.randaugment_magnitude=9"};

const Rows kImageRows{
    {"data.mix", {"FOLDER/mixed.h5", weights, {"data.mix_rate=0.75"}}},
    {"data.mix_rate", {"0.05", weights, {"data.mix=FOLDER/mixed.h5", "data.mix_rate=0.9"}}},
    {"data.mix_items", {"1", weights, {"data.mix=FOLDER/mixed.h5", "data.mix_rate=0.9"}}},
    {"data.labels", {"true"}},
    {"data.classes", {"6", weights, {"data.labels=true"}}},
    {"augment.rotation", {"true"}},
    {"augment.color", {"true"}},
    {"augment.transposition", {"true"}},
    {"augment.reversal", {"true"}},
    {"augment.jigsaw", {"2"}},
    {"augment.random_order", {"3"}},
    {"augment.random_order_seeds", {"[42, 7]", weights, kOrders}},
    {"augment.randaugment", {"2"}},
    {"augment.randaugment_magnitude", {"1", weights, kRand}},
    {"augment.randaugment_rate", {"0", weights, kRand}},
    {"augment.flip", {"true"}},
    {"augment.conditional", {"false", weights, kRotated}},
    {"augment.permute_positions", {"false", weights, kOrders}},
    {"augment.unaugmented_rate", {"0.9", weights, kRotated}},
};

class EveryImageKey : public EveryKey {
 protected:
  EveryImageKey() {
    write_tiny_images(dir_ / "images.h5");
    write_tiny_images(dir_ / "mixed.h5", 9);
  }

  Config config_with(const std::vector<std::string>& overrides) const override {
    return tiny_image_config(dir_.path(), overrides);
  }
};

TEST_F(EveryImageKey, HasARowHereThatIsAnotherValue) {
  for (const auto& [key, value] : values_of(Config{}))
    EXPECT_TRUE(kImageRows.contains(key) || part_of_key(key) != "formats")
        << "add a row for " << key << " to kImageRows in " << __FILE__
        << ": another value, and what of a run differs with it";
  expect_other_values(kImageRows);
}

TEST_F(EveryImageKey, ShowsInARun) { expect_shown_in_a_run(kImageRows); }
}  // namespace
}  // namespace weft
