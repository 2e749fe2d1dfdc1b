// SPDX-License-Identifier: MIT
#include "src/config/differences.h"

#include "src/config/fields.h"
#include "src/config/names.h"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace weft {
std::vector<KeyDifference> config_differences(const Config& there, const Config& here) {
  Config a = there, b = here;
  for (Config* c : {&a, &b})
    for (std::string* path : {&c->data.path, &c->data.mix})
      *path = std::filesystem::path(*path).filename();
  std::vector<std::string> values;
  for_each_field(a, [&](const Field& f) { values.push_back(value_text(f)); });
  std::vector<KeyDifference> differences;
  std::size_t at = 0;
  for_each_field(b, [&](const Field& f) {
    const std::string &before = values[at++], now = value_text(f);
    if (before != now) differences.push_back({f.key, before, now, f.on_resume, f.effect});
  });
  return differences;
}

std::string keys_on_resume(OnResume rule) {
  Config c;
  std::vector<std::string> keys;
  for_each_field(c, [&](const Field& f) {
    if (f.on_resume == rule) keys.push_back(f.key);
  });
  return joined(keys);
}
}  // namespace weft
