// SPDX-License-Identifier: MIT
#include "src/config/config.h"
#include "src/config/differences.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/files/checkpoint.h"
#include "src/files/hdf5.h"
#include "src/parts/parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft {
namespace {
bool is_position(const std::string& name) { return name.starts_with("position."); }

// Index t / (product of the later axes) finds the row: more rows of the first axis change no other.
bool extends(const Shape& there, const ParamInfo& p) {
  return p.name == "position.0" && there.size() == 2 && there[1] == p.shape[1] &&
         there[0] < p.shape[0];
}

void check_shapes(const WeightsFile& file, const ParameterStore& store) {
  const auto of_axes = [&](int64_t here) {
    const auto there = std::ranges::count_if(
        file.shapes, [](const auto& entry) { return is_position(entry.first); });
    if (here != 0 && there != 0 && here != there)
      fail(file.path, ": has position tables of ", there, " axes, the model has ", here,
           ": take the model.position_axes of the file, with a larger first one for a longer "
           "context");
  };
  of_axes(std::count_if(store.params().begin(), store.params().end(),
                        [](const ParamInfo& p) { return is_position(p.name); }));
  for (const ParamInfo& p : store.params()) {
    const auto found = file.shapes.find(p.name);
    if (found == file.shapes.end() || found->second == p.shape || extends(found->second, p))
      continue;
    fail(file.path, ": ", p.name, " is ", shape_text(found->second), " there and ",
         shape_text(p.shape), " here",
         is_position(p.name) ? "; of position tables only position.0 may get more rows" : "");
  }
}

std::map<std::string, ReadWeights>& weights_formats() {
  static std::map<std::string, ReadWeights> table;
  return table;
}

constexpr std::size_t kNamed = 6;  // names on a line

std::string some_of(std::vector<std::string> names) {
  const std::size_t all = names.size();
  if (all > kNamed) names.resize(kNamed);
  return joined(names) + (all > kNamed ? str(" and ", all - kNamed, " more") : "");
}
}  // namespace

std::string WeightsFile::text() const {
  return str(path, ", the ", ema ? "moving average of the weights" : "last weights", " of step ",
             step);
}

std::vector<float> WeightsFile::values(const std::string& name) const {
  std::vector<float> all = read(name);
  const auto bad = std::ranges::find_if_not(all, [](float x) { return std::isfinite(x); });
  if (bad != all.end())
    fail(path, ": ", name, " holds ", *bad, " (element ", bad - all.begin(),
         "), expected finite numbers");
  return all;
}

void add_weights_format(const std::string& extension, ReadWeights read) {
  weights_formats()[extension] = read;
}

WeightsFile open_weights(const std::string& path, bool last) {
  register_parts();
  const std::string extension = std::filesystem::path(path).extension();
  const auto format = weights_formats().find(extension);
  if (format != weights_formats().end()) return format->second(path);
  if (const std::string absent = absent_part_text(extension); !absent.empty())
    fail(path, ": ", absent);
  return checkpoint_weights(path, last);
}

TakenWeights take_weights(const WeightsFile& file, Device& device, ParameterStore& store) {
  WEFT_CHECK(store.master().dtype() == DType::f32, "weights are taken into f32");
  check_shapes(file, store);
  TakenWeights result;
  std::vector<float> longer;  // position.0, where it is extended
  for (const ParamInfo& p : store.params()) {
    const auto found = file.shapes.find(p.name);
    const bool extended = found != file.shapes.end() && extends(found->second, p);
    (found == file.shapes.end() ? result.drawn
     : extended                 ? result.extended
                                : result.taken)
        .push_back(p.name);
  }
  if (!result.extended.empty())
    store.visit_whole(store.master(), [&](const ParamInfo& p, const TensorView& view) {
      if (p.name != result.extended[0]) return;
      longer.resize(p.size);
      device.download(longer.data(), view);
    });
  for (const ParamInfo& p : store.params()) {
    if (!file.shapes.contains(p.name)) continue;
    std::vector<float> values = file.values(p.name);
    if (!longer.empty() && p.name == result.extended[0]) {
      std::ranges::copy(values, longer.begin());
      values = longer;
    }
    for (const Tensor& block : {store.master(), store.ema()})
      if (block) store.upload(block, p, values.data());
  }
  for (const auto& [name, shape] : file.shapes)
    if (std::ranges::find(store.params(), name, &ParamInfo::name) == store.params().end())
      result.unused.push_back(name);
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  store.refresh_compute(ctx);
  device.synchronize();
  return result;
}

std::vector<std::string> take_initial_weights(const std::string& path, const Config& config,
                                              Device& device, ParameterStore& store) {
  const WeightsFile file = open_weights(path);
  const Config there = parse_config(file.config, path);
  if (there.model.heads != config.model.heads)
    fail(path, ": its model has ", there.model.heads, " heads, this one ", config.model.heads,
         ": set model.heads=", there.model.heads);
  const TakenWeights result = take_weights(file, device, store);
  if (result.taken.empty()) fail(path, ": holds none of the parameters of this model");
  std::vector<std::string> lines = {str(file.text(), ": ", result.taken.size(), " of ",
                                        store.params().size(), " parameters taken")};
  for (const std::string& name : result.extended)
    lines.push_back(str("extended: ", name, ", the first ", file.shapes.at(name)[0],
                        " rows taken, the others drawn anew"));
  if (!result.drawn.empty()) lines.push_back("drawn anew: " + some_of(result.drawn));
  if (!result.unused.empty()) lines.push_back("left in the file: " + some_of(result.unused));
  for (const KeyDifference& d : config_differences(there, config))
    if (d.key.starts_with("model."))
      lines.push_back(str(d.key, ": ", d.there, " there, ", d.here, " here"));
  return lines;
}
}  // namespace weft
