// SPDX-License-Identifier: MIT
// What parts add to the program `convert`: folders that other people's programs load.
#pragma once

#include "kernels/dtype.h"

#include <string>
#include <vector>

namespace weft {
struct WeightsFile;

struct ConvertTarget {
  std::string name;  // as --to has it
  std::string about;
  // Makes `folder`, which is new or empty: all of it or nothing. Throws Error for a model that the
  // format can't express.
  void (*save)(const std::string& folder, const WeightsFile&, DType);
};

// The table: a part adds a row (src/parts/parts.h).
void add_convert_target(const ConvertTarget&);
const std::vector<ConvertTarget>& convert_targets();
}  // namespace weft
