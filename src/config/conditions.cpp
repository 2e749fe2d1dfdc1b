// SPDX-License-Identifier: MIT
#include "src/config/conditions.h"

#include "src/config/config.h"

#include <cstdint>
#include <vector>

namespace weft {
const char* name_of(Augment kind) {
  static constexpr const char* kNames[kAugments + 1] = {"rotation",     "color",   "transposition",
                                                        "reversal",     "jigsaw",  "randaugment",
                                                        "random_order", "dataset", "label"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Condition> augmentations(const Config& config) {
  const AugmentConfig& a = config.augment;
  std::vector<Condition> kinds;
  int64_t rows = 0;
  const auto add = [&](bool used, Augment kind, int64_t values) {
    if (!used) return;
    kinds.push_back({kind, values, rows});
    rows += values;
  };
  add(a.rotation, Augment::rotation, 4);
  add(a.color, Augment::color, 6);
  add(a.transposition, Augment::transposition, 2);
  add(a.reversal, Augment::reversal, 2);
  int64_t orders = 1;  // of the tiles
  for (int64_t tile = 2; tile <= a.jigsaw * a.jigsaw; ++tile) orders *= tile;
  add(a.jigsaw > 1, Augment::jigsaw, orders);
  add(a.randaugment > 0, Augment::randaugment, 2);
  add(a.random_order > 0, Augment::random_order, a.random_order + 1);
  add(!config.data.mix.empty(), Augment::dataset, 2);
  return kinds;
}

std::vector<Condition> conditions(const Config& config) {
  std::vector<Condition> told;
  if (config.augment.conditional) told = augmentations(config);
  if (config.data.labels)
    told.push_back({Augment::label, config.data.classes, condition_rows(told)});
  return told;
}

int64_t condition_rows(const std::vector<Condition>& kinds) {
  return kinds.empty() ? 0 : kinds.back().first_row + kinds.back().values;
}
}  // namespace weft
