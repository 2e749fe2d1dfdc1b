// SPDX-License-Identifier: MIT
// The report on a config, and the pictures of one head.
#include "train/inspect/report.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <ostream>

#include "models/model.h"
#include "models/shape.h"
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/memory.h"
#include "train/inspect/pattern.h"
#include "train/program/counts.h"
#include "train/program/loaded_model.h"
#include "train/program/progress.h"

namespace weft {
namespace {

// Parameters whose names differ in one number only, and that have one shape.
struct ParameterGroup {
  std::string before, after;  // of the number
  std::vector<std::int64_t> numbers;
  Shape shape;
  std::string name() const { return before + numbers_text(numbers) + after; }
};

std::vector<ParameterGroup> parameter_groups(const ParameterStore& store) {
  std::vector<ParameterGroup> groups;
  for (const ParamInfo& info : store.params()) {
    const std::size_t first = std::min(info.name.find_first_of("0123456789"), info.name.size());
    const std::size_t end = std::min(info.name.find_first_not_of("0123456789", first), info.name.size());
    const std::string before = info.name.substr(0, first), after = info.name.substr(end);
    const auto like = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
      return group.before == before && group.after == after && group.shape == info.shape;
    });
    ParameterGroup& group =
        like != groups.end() ? *like : groups.emplace_back(ParameterGroup{before, after, {}, {}});
    group.shape = info.shape;
    if (end > first) group.numbers.push_back(std::stoll(info.name.substr(first, end - first)));
  }
  return groups;
}

void print_parameters(const ParameterStore& store, std::ostream& out) {
  std::int64_t total = 0, decayed = 0;
  std::vector<std::vector<std::string>> rows = {{"parameter", "shape", "count"}};
  for (const ParameterGroup& group : parameter_groups(store)) {
    std::string shape;
    auto count = static_cast<std::int64_t>(std::max<std::size_t>(group.numbers.size(), 1));
    for (const std::int64_t extent : group.shape) {
      shape += str(shape.empty() ? "" : " x ", extent);
      count *= extent;
    }
    total += count;
    rows.push_back({group.name(), shape, grouped_digits(count)});
  }
  for (const ParamInfo& info : store.params())
    if (info.decay)
      decayed += std::accumulate(info.shape.begin(), info.shape.end(), std::int64_t{1}, std::multiplies<>());
  rows.push_back({"all", "", grouped_digits(total)});
  rows.push_back({"with weight decay", "", grouped_digits(decayed)});
  out << text_table(rows, 2);
}

void print_memory(const Config& config, std::ostream& out) {
  const std::int64_t micro_batch = config.train.batch / config.train.accumulation;
  out << "\nmemory for training, " << micro_batch << " x " << config.model.context << " tokens at a time, "
      << name_of(compute_dtype(config)) << "\n";
  std::vector<std::vector<std::string>> rows = {
      {"recompute", "weights", "gradients", "optimizer", "activations", "workspace", "all"}};
  for (const char* recompute : {"none", "attention", "block"}) {
    Config variant = config;
    variant.train.recompute = recompute;
    const MemoryPlan plan = plan_memory(variant, micro_batch, config.model.context, true);
    const bool chosen = config.train.recompute == recompute;
    rows.push_back({str(recompute, chosen ? " (this config)" : ""), bytes_text(plan.weights),
                    bytes_text(plan.gradients), bytes_text(plan.optimizer), bytes_text(plan.activations),
                    bytes_text(plan.workspace), bytes_text(plan.total())});
  }
  out << text_table(rows, 1);
}

// What the model is told before the first token.
void print_conditions(const Config& config, std::ostream& out) {
  const std::vector<Condition> told = conditions(config);
  if (told.empty()) {
    if (!augmentations(config).empty()) out << "\nthe model is not told of its augmentations\n";
    return;
  }
  out << "\nconditions: the start vector is the sum of one row for each kind\n";
  std::vector<std::vector<std::string>> rows = {{"kind", "values", "rows of start"}};
  for (const Condition& kind : told)
    rows.push_back({name_of(kind.kind), grouped_digits(kind.values),
                    str(kind.first_row, "-", kind.first_row + kind.values - 1)});
  out << text_table(rows, 1);
}

void print_attention(const Config& config, const Model& model, Lengths n, const AttentionTarget& target,
                     std::ostream& out) {
  const auto heads = static_cast<int>(config.model.heads);
  out << "\nattention over " << grouped_digits(n.queries) << " positions";
  if (n.keys != n.queries) out << " and " << grouped_digits(n.keys) << " keys";
  out << ", " << heads << " heads; pairs and tables of one layer\n";
  std::vector<std::vector<std::string>> rows = {attention_columns()};
  for (const LayerGroup& layers : layer_groups(model.patterns()))
    for (const AttentionCounts& counts : count_attention(*layers.pattern, heads, n, target)) {
      std::vector<std::string> row = attention_row(counts, n);
      row[0] = numbers_text(layers.members);
      rows.push_back(std::move(row));
    }
  out << text_table(rows, 3);
}

void print_report(const Config& config, const Model& model, const ParameterStore& store, Lengths n,
                  const AttentionTarget& target, std::ostream& out) {
  const ModelConfig& m = config.model;
  out << config.source << ": " << config.name << ", " << m.kind << ", " << m.layers << " layers, width "
      << m.width << ", " << m.heads << " heads, context " << m.context << "\n\n";
  print_parameters(store, out);
  print_conditions(config, out);
  print_memory(config, out);
  out << "\nFLOPs a token, forward and backward, of the pairs needed: "
      << fixed_text(flops_per_token(m, m.context) / 1e6, 1) << " million\n";
  print_attention(config, model, n, target, out);
}

}  // namespace

void inspect(const InspectOptions& options, std::ostream& out) {
  if (options.config.empty() == options.attention.empty())
    fail("inspect looks at --config FILE, or at a pattern alone: --attention '{kind: local, stride: 128}'");
  if (!options.attention.empty()) return inspect_attention(options, out);
  if (options.pattern.empty() && draws(options))
    fail("--png, --mask-out, --position, --columns and --grid draw one head: add --pattern LAYER,HEAD");
  const Config config = load_config(options.config, options.overrides, ConfigUse::picture);
  const Lengths n = lengths_of(options, config.model.context);
  const std::unique_ptr<Device> cpu = make_device("cpu"), device = make_device(options.device);
  ParameterStore store;
  const std::unique_ptr<Model> model = make_model(config, store, *cpu);
  const AttentionShape shape = attention_shape(config.model);
  const AttentionTarget target = {shape.qk_size, shape.v_size, dtype_on(*device, config),
                                  device->compute_capability};
  if (options.pattern.empty()) return print_report(config, *model, store, n, target, out);
  const auto [layer, head] = read_layer_head(options.pattern, config.model.layers, config.model.heads);
  const auto& specs = config.model.attention;
  const PatternView view = {*model->patterns().at(static_cast<std::size_t>(layer)),
                            specs[static_cast<std::size_t>(layer) % specs.size()],
                            static_cast<int>(config.model.heads), head, n};
  InspectOptions drawn = options;
  if (drawn.grid.empty() && config.model.position_axes.size() == 3) drawn.grid = config.model.position_axes;
  out << "layer " << layer << ", ";
  show_pattern(view, drawn, target, out);
}

}  // namespace weft
