// SPDX-License-Identifier: MIT
#include "train/trainer/extension.h"

#include "src/parts/parts.h"

#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<AddTrainOptions>& table() {
  static std::vector<AddTrainOptions> rows;
  return rows;
}
}  // namespace

void add_train_options(AddTrainOptions row) { table().push_back(std::move(row)); }

const std::vector<AddTrainOptions>& train_options() {
  register_parts();
  return table();
}
}  // namespace weft
