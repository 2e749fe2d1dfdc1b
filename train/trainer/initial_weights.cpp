// SPDX-License-Identifier: MIT
#include "train/trainer/initial_weights.h"

#include "src/config/names.h"
#include "src/files/weights.h"

namespace weft {
namespace {

constexpr std::size_t kNamed = 6;  // names on a line

std::string some_of(std::vector<std::string> names) {
  const std::size_t all = names.size();
  if (all > kNamed) names.resize(kNamed);
  return joined(names) + (all > kNamed ? str(" and ", all - kNamed, " more") : "");
}

}  // namespace

std::vector<std::string> take_initial_weights(const std::string& path, const Config& config, Device& device,
                                              ParameterStore& store) {
  const WeightsFile file = open_weights(path);
  const Config there = parse_config(file.config, path);
  if (there.model.heads != config.model.heads)
    fail(path, ": its model has ", there.model.heads, " heads, this one ", config.model.heads,
         ": set model.heads=", there.model.heads);
  const TakenWeights result = take_weights(file, device, store);
  if (result.taken.empty()) fail(path, ": holds none of the parameters of this model");
  std::vector<std::string> lines = {
      str(file.text(), ": ", result.taken.size(), " of ", store.params().size(), " parameters taken")};
  for (const std::string& name : result.extended)
    lines.push_back(str("extended: ", name, ", the first ", file.shapes.at(name)[0],
                        " rows taken, the others drawn anew"));
  if (!result.drawn.empty()) lines.push_back("drawn anew: " + some_of(result.drawn));
  if (!result.unused.empty()) lines.push_back("left in the file: " + some_of(result.unused));
  for (const KeyDifference& d : config_differences(there, config))
    if (d.key.starts_with("model.")) lines.push_back(str(d.key, ": ", d.there, " there, ", d.here, " here"));
  return lines;
}

}  // namespace weft
