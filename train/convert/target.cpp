// SPDX-License-Identifier: MIT
#include "train/convert/target.h"

#include "src/parts/parts.h"

#include <vector>

namespace weft {
namespace {
std::vector<ConvertTarget>& table() {
  static std::vector<ConvertTarget> rows;
  return rows;
}
}  // namespace

void add_convert_target(const ConvertTarget& row) { table().push_back(row); }

const std::vector<ConvertTarget>& convert_targets() {
  register_parts();
  return table();
}
}  // namespace weft
