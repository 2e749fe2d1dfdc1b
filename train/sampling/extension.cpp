// SPDX-License-Identifier: MIT
#include "train/sampling/extension.h"

#include "src/parts/parts.h"

#include <memory>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<MakeSampleExtension>& table() {
  static std::vector<MakeSampleExtension> rows;
  return rows;
}
}  // namespace

void add_sample_extension(MakeSampleExtension row) { table().push_back(std::move(row)); }

std::vector<std::shared_ptr<SampleExtension>> sample_extensions() {
  register_parts();
  std::vector<std::shared_ptr<SampleExtension>> made;
  for (const MakeSampleExtension& make : table()) made.push_back(make());
  return made;
}
}  // namespace weft
