// SPDX-License-Identifier: MIT
// The report on a config, and the pictures of one head.
#include "train/inspect_report.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iomanip>
#include <map>
#include <numeric>
#include <ostream>

#include "models/model.h"
#include "models/shape.h"
#include "src/config.h"
#include "src/memory.h"
#include "train/inspect_counts.h"
#include "train/picture.h"

namespace weft {
namespace {

std::string decimals(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

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
  for (const char* recompute : {"none", "block"}) {
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

void print_attention(const Config& config, const Model& model, std::int64_t length, std::ostream& out) {
  const auto heads = static_cast<int>(config.model.heads);
  const auto& layers = model.patterns();
  std::map<std::string, std::vector<std::int64_t>> layers_of;
  std::vector<const AttentionPattern*> distinct;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    auto& members = layers_of[layers[layer]->name()];
    if (members.empty()) distinct.push_back(layers[layer].get());
    members.push_back(static_cast<std::int64_t>(layer));
  }
  out << "\nattention over " << grouped_digits(length) << " positions, " << heads
      << " heads; pairs of one layer\n";
  std::vector<std::vector<std::string>> rows = {{"layers", "pattern", "pairs needed", "executed", "waste",
                                                 "keys: least", "mean", "most", "cache rows"}};
  for (const AttentionPattern* pattern : distinct) {
    const AttentionCounts counts =
        count_attention(*pattern, heads, length, attention_shape(config.model).head_size());
    rows.push_back({numbers_text(layers_of[pattern->name()]), pattern->name(),
                    grouped_digits(counts.pairs.needed), grouped_digits(counts.pairs.executed),
                    decimals(counts.pairs.waste(), 3), grouped_digits(counts.keys_min),
                    decimals(counts.keys_mean, 1), grouped_digits(counts.keys_max),
                    grouped_digits(counts.cache_rows)});
  }
  out << text_table(rows, 2);
}

struct LayerHead {
  std::int64_t layer = 0;
  int head = 0;
};

LayerHead read_layer_head(const std::string& text, const ModelConfig& model) {
  long long layer = -1;
  int head = -1, used = 0;
  const bool read = std::sscanf(text.c_str(), "%lld,%d%n", &layer, &head, &used) == 2;
  if (!read || used != static_cast<int>(text.size()) || layer < 0 || layer >= model.layers || head < 0 ||
      head >= model.heads)
    fail(str("--pattern takes LAYER,HEAD with a layer from 0 to ", model.layers - 1, " and a head from 0 to ",
             model.heads - 1, ", got '", text, "'"));
  return {layer, head};
}

// A position well inside the sequence and inside its row.
std::int64_t typical_position(std::int64_t length, std::int64_t row_length) {
  if (row_length >= length) return length * 5 / 8;
  return std::min(length - 1, length * 5 / 8 / row_length * row_length + row_length * 5 / 8);
}

void show_pattern(const InspectOptions& options, const Config& config, const Model& model,
                  std::int64_t length, std::ostream& out) {
  const auto [layer, head] = read_layer_head(options.pattern, config.model);
  const AttentionPattern& pattern = *model.patterns().at(static_cast<std::size_t>(layer));
  const PatternSpec& spec =
      config.model.attention[static_cast<std::size_t>(layer) % config.model.attention.size()];
  const std::int64_t position = options.position.value_or(typical_position(length, spec.stride));
  if (position < 0 || position >= length)
    fail(str("--position must be between 0 and ", length - 1, " (the length is ", length, "), got ",
             position));
  if (!options.mask_out.empty()) write_mask_npy(options.mask_out, pattern, head, length);
  if (!options.png.empty())
    write_png(options.png, pattern_image(pattern, {head, length, position, spec.stride}));
  const PairCount pairs = PackedMaps(pattern, static_cast<int>(config.model.heads), length,
                                     attention_shape(config.model).head_size())
                              .pairs(head);
  out << "layer " << layer << ", head " << head << ": " << pattern.name() << ", " << grouped_digits(length)
      << " positions, " << grouped_digits(pairs.needed) << " pairs, waste " << decimals(pairs.waste(), 3)
      << "\nrows: queries, columns: keys; # attended, . not, :-=+* a growing share\n"
      << connectivity_text(pattern, head, length);
  for (const std::string& file : {options.png, options.mask_out})
    if (!file.empty()) out << "wrote " << file << "\n";
}

}  // namespace

void inspect(const InspectOptions& options, std::ostream& out) {
  if (options.pattern.empty() && (!options.png.empty() || !options.mask_out.empty() || options.position))
    fail("--png, --mask-out and --position draw one head: add --pattern LAYER,HEAD");
  const Config config = load_config(options.config, options.overrides, ConfigUse::picture);
  const std::int64_t length = options.length.value_or(config.model.context);
  if (length < 1 || length > kMaxPositions)
    fail(str("--length must be between 1 and ", kMaxPositions, ", got ", length));
  const std::unique_ptr<Device> device = make_device("cpu");
  ParameterStore store;
  const std::unique_ptr<Model> model = make_model(config, store, *device);
  if (!options.pattern.empty()) return show_pattern(options, config, *model, length, out);
  const ModelConfig& m = config.model;
  out << config.source << ": " << config.name << ", " << m.kind << ", " << m.layers << " layers, width "
      << m.width << ", " << m.heads << " heads, context " << m.context << "\n\n";
  print_parameters(store, out);
  print_memory(config, out);
  out << "\nFLOPs a token, forward and backward, of the pairs needed: "
      << decimals(flops_per_token(m, m.context) / 1e6, 1) << " million\n";
  print_attention(config, *model, length, out);
}

}  // namespace weft
