// SPDX-License-Identifier: MIT
#include "train/evaluation/extension.h"

#include "src/parts/parts.h"

#include <memory>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<MakeEvaluateExtension>& table() {
  static std::vector<MakeEvaluateExtension> rows;
  return rows;
}
}  // namespace

void add_evaluate_extension(MakeEvaluateExtension row) { table().push_back(std::move(row)); }

std::vector<std::shared_ptr<EvaluateExtension>> evaluate_extensions() {
  register_parts();
  std::vector<std::shared_ptr<EvaluateExtension>> made;
  for (const MakeEvaluateExtension& make : table()) made.push_back(make());
  return made;
}
}  // namespace weft
