// SPDX-License-Identifier: MIT
#include "src/config/conditions.h"

#include "src/parts/parts.h"

#include <string>
#include <vector>

namespace weft {
namespace {
std::vector<ConfigExtension>& extensions() {
  static std::vector<ConfigExtension> rows;
  return rows;
}
}  // namespace

void add_config_extension(const ConfigExtension& row) { extensions().push_back(row); }

const std::vector<ConfigExtension>& config_extensions() {
  register_parts();
  return extensions();
}

std::vector<Condition> conditions(const Config& config) {
  std::vector<Condition> told;
  for (const ConfigExtension& extension : config_extensions()) {
    const int64_t rows = condition_rows(told);
    for (Condition condition : extension.conditions(config)) {
      condition.first_row += rows;
      told.push_back(condition);
    }
  }
  return told;
}

int64_t condition_rows(const std::vector<Condition>& kinds) {
  return kinds.empty() ? 0 : kinds.back().first_row + kinds.back().values;
}
}  // namespace weft
