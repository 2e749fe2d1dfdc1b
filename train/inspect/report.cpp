// SPDX-License-Identifier: MIT
#include "train/inspect/report.h"

#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/files/files.h"
#include "src/parts/parts.h"
#include "src/patterns/pattern.h"
#include "train/inspect/arch.h"
#include "train/inspect/check_options.h"
#include "train/inspect/explain.h"
#include "train/inspect/key_counts.h"
#include "train/inspect/pattern_view.h"
#include "train/inspect/picture.h"
#include "train/inspect/tile_image.h"
#include "train/inspect/tile_text.h"
#include "train/inspect/tiles.h"
#include "train/program/counts.h"
#include "train/program/loaded_model.h"
#include "train/program/run_argument.h"
#include "train/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <sstream>
#include <utility>

namespace weft {
namespace {
// Parameters whose names differ in one number only, and that have one shape.
struct ParameterGroup {
  std::string before, after;  // of the number
  std::vector<int64_t> numbers;
  Shape shape;
  int64_t elements = 0;  // of all

  std::string name() const { return before + numbers_text(numbers) + after; }
};

std::vector<ParameterGroup> parameter_groups(const ParameterStore& store) {
  std::vector<ParameterGroup> groups;
  for (const ParamInfo& info : store.params()) {
    const std::size_t first = std::min(info.name.find_first_of("0123456789"), info.name.size());
    const std::size_t end =
        std::min(info.name.find_first_not_of("0123456789", first), info.name.size());
    const std::string before = info.name.substr(0, first), after = info.name.substr(end);
    const auto like = std::ranges::find_if(groups, [&](const ParameterGroup& group) {
      return group.before == before && group.after == after && group.shape == info.shape;
    });
    ParameterGroup& group =
        like != groups.end() ? *like
                             : groups.emplace_back(ParameterGroup{before, after, {}, info.shape});
    group.elements += info.size;
    if (end > first) group.numbers.push_back(std::stoll(info.name.substr(first, end - first)));
  }
  return groups;
}

void print_parameters(const ParameterStore& store, std::ostream& out) {
  int64_t total = 0, decayed = 0;
  std::vector<std::vector<std::string>> rows = {{"parameter", "shape", "count"}};
  for (const ParameterGroup& group : parameter_groups(store))
    rows.push_back({group.name(), joined(group.shape, " x "), grouped_digits(group.elements)});
  for (const ParamInfo& info : store.params()) {
    total += info.size;
    if (info.decay) decayed += info.size;
  }
  rows.push_back({"all", "", grouped_digits(total)});
  rows.push_back({"with weight decay", "", grouped_digits(decayed)});
  out << text_table(rows, 2);
}

void print_memory(const Config& config, std::ostream& out) {
  const int64_t micro_batch = config.train.batch / config.train.accumulation;
  out << "\nmemory for training, " << micro_batch << " x " << config.model.context
      << " tokens at a time, " << name_of(config.precision) << "\n";
  std::vector<std::vector<std::string>> rows = {
      {"recompute", "weights", "gradients", "optimizer", "activations", "workspace", "all"}};
  for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::block}) {
    Config variant = config;
    variant.train.recompute = recompute;
    const MemoryPlan plan = plan_memory(variant, micro_batch, config.model.context, true);
    const bool chosen = config.train.recompute == recompute;
    rows.push_back({str(value_text(variant, "train.recompute"), chosen ? " (this config)" : ""),
                    bytes_text(plan.weights), bytes_text(plan.gradients),
                    bytes_text(plan.optimizer), bytes_text(plan.activations),
                    bytes_text(plan.workspace), bytes_text(plan.total())});
  }
  out << text_table(rows, 1);
}

void print_conditions(const Config& config, std::ostream& out) {
  const std::vector<Condition> told = conditions(config);
  if (told.empty()) {
    for (const ConfigExtension& extension : config_extensions())
      if (const std::string untold = extension.untold(config); !untold.empty())
        out << '\n' << untold << '\n';
    return;
  }
  out << "\nconditions: the start vector is the sum of one row for each kind\n";
  std::vector<std::vector<std::string>> rows = {{"kind", "values", "rows of start"}};
  for (const Condition& kind : told)
    rows.push_back({kind.name, grouped_digits(kind.values),
                    str(kind.first_row, "-", kind.first_row + kind.values - 1)});
  out << text_table(rows, 1);
}

// The table of counts: its head, and a row for a group of heads, the first cell for the layers.
const std::vector<std::string> kAttentionColumns = {
    "layers",      "heads", "pattern", "pairs needed", "executed", "waste", "density",
    "keys: least", "mean",  "most",    "cache rows",   "edge",     "form",  "tables"};

std::vector<std::string> attention_row(const std::string& layers, const AttentionCounts& counts,
                                       const AttentionPattern& pattern, Lengths n) {
  const auto needed = static_cast<double>(counts.pairs.needed),
             queries = static_cast<double>(n.queries * std::ssize(counts.heads));
  const KeyCounts keys = count_keys(pattern, static_cast<int>(counts.heads.at(0)), n);
  return {layers,
          numbers_text(counts.heads),
          counts.pattern,
          grouped_digits(counts.pairs.needed),
          grouped_digits(counts.pairs.executed),
          fixed_text(counts.pairs.waste(), 3),
          fixed_text(100 * needed / (queries * static_cast<double>(n.keys)), 2) + "%",
          grouped_digits(keys.least),
          fixed_text(needed / queries, 1),
          grouped_digits(keys.most),
          keys.cache_rows > 0 ? grouped_digits(keys.cache_rows) : "-",
          counts.edges_text(),
          counts.form_text(),
          bytes_text(counts.table_bytes)};
}

void print_attention(const Config& config, const Model& model, Lengths n,
                     const AttentionTarget& target, std::ostream& out) {
  const auto heads = static_cast<int>(config.model.heads);
  out << "\nattention over " << grouped_digits(n.queries) << " positions";
  if (n.keys != n.queries) out << " and " << grouped_digits(n.keys) << " keys";
  out << ", " << heads << " heads; pairs and tables of one layer\n";
  std::vector<std::vector<std::string>> rows = {kAttentionColumns};
  for (const LayerGroup& layers : layer_groups(model.patterns()))
    for (const AttentionCounts& counts : count_attention(*layers.pattern, heads, n, target))
      rows.push_back(attention_row(numbers_text(layers.members), counts, *layers.pattern, n));
  out << text_table(rows, 3);
}

void print_report(const Config& config, const Model& model, const ParameterStore& store, Lengths n,
                  const AttentionTarget& target, std::ostream& out) {
  const ModelConfig& m = config.model;
  out << config.source << ": " << config.name << ", " << m.kind << ", " << m.layers
      << " layers, width " << m.width << ", " << m.heads << " heads, context " << m.context
      << (m.positions == PositionCode::rotary ? ", rotary positions" : "")
      << (m.qk_norm == QkNorm::rms ? ", QK-norm" : "") << "\n\n";
  print_parameters(store, out);
  print_conditions(config, out);
  print_memory(config, out);
  out << "\nFLOPs a token, forward and backward, of the pairs needed: "
      << fixed_text(flops_per_token(m, m.context) / 1e6, 1) << " million\n";
  print_attention(config, model, n, target, out);
}

// Positions in a row of the receptive field, unless chosen: the period of the pattern.
int64_t natural_columns(const PatternSpec& spec, int64_t keys) {
  if (!spec.grid.empty()) return spec.grid.back();
  if (!spec.of.empty()) return natural_columns(spec.of[0], keys);
  const std::vector<std::string> fields = fields_read(spec);
  const auto reads = [&](const char* field) { return std::ranges::count(fields, field) > 0; };
  if (reads("stride")) return spec.stride;
  if (reads("block") && spec.block > 0) return spec.block;
  return static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(keys))));
}

// A position well inside the sequence and inside its row.
int64_t typical_position(int64_t length, int64_t row_length) {
  if (row_length >= length) return length * 5 / 8;
  return std::min(length - 1, length * 5 / 8 / row_length * row_length + row_length * 5 / 8);
}

std::string counts_text(const PatternView& view, const AttentionTarget& target) {
  const std::vector<AttentionCounts> groups =
      count_attention(view.pattern, view.heads, view.n, target);
  AttentionCounts counts = groups.at(static_cast<std::size_t>(view.pattern.group(view.head)));
  const auto alike = static_cast<int64_t>(counts.heads.size());
  counts.pairs.needed /= alike;
  counts.pairs.executed /= alike;
  counts.heads = {view.head};
  std::vector<std::vector<std::string>> rows = {kAttentionColumns,
                                                attention_row("", counts, view.pattern, view.n)};
  for (auto& row : rows) row.erase(row.begin());  // the layers
  return text_table(rows, 2);
}

// --length and --keys.
Lengths lengths_of(const InspectOptions& options, int64_t otherwise) {
  const Lengths n(options.length.value_or(otherwise),
                  options.keys.value_or(options.length.value_or(otherwise)));
  for (const auto& [name, value] : {std::pair{"--length", n.queries}, {"--keys", n.keys}})
    if (value < 1 || value > kMaxPositions)
      fail(name, " must be between 1 and ", kMaxPositions, ", got ", value);
  return n;
}

// LAYER,HEAD.
std::pair<int64_t, int> read_layer_head(const InspectOptions& options, int64_t layers,
                                        int64_t heads) {
  const auto [option, text] = chosen_head(options);
  long long layer = -1;
  int head = -1, used = 0;
  const bool read = std::sscanf(text.c_str(), "%lld,%d%n", &layer, &head, &used) == 2;
  if (!read || used != static_cast<int>(text.size()) || layer < 0 || layer >= layers || head < 0 ||
      head >= heads)
    fail(option, " takes LAYER,HEAD with a layer from 0 to ", layers - 1, " and a head from 0 to ",
         heads - 1, ", got '", text, "'");
  return {layer, head};
}

// Prints counts, receptive field and connectivity matrix as text; writes the files that `options`
// ask for. `count` may take minutes: options that do not fit are refused before.
void show_pattern(const PatternView& view, const InspectOptions& options,
                  const std::function<std::string()>& count, std::ostream& out) {
  const auto& [pattern, spec, heads, head, n] = view;
  const int64_t columns = options.columns.value_or(natural_columns(spec, n.keys));
  if (columns < 1) fail("--columns must be at least 1, got ", columns);
  const int64_t position = options.position.value_or(typical_position(n.queries, columns));
  if (position < 0 || position >= n.queries)
    fail("--position must be between 0 and ", n.queries - 1, " (the length is ", n.queries,
         "), got ", position);
  std::vector<FieldLayout> layouts = {FieldLayout::in_rows(n.keys, columns)};
  if (!options.grid.empty()) layouts.push_back(FieldLayout::image(n.keys, options.grid));
  if (!options.mask_out.empty()) check_mask_lengths(n);
  if (!options.png.empty() && !picture_writer()) fail(absent_part_text("--png"));
  const std::string counts = count();
  if (!options.mask_out.empty()) write_mask_npy(options.mask_out, pattern, head, n);
  if (!options.png.empty())
    picture_writer()(options.png, pattern, {head, n, position, columns, options.grid});
  out << title_of(view) << "\n"
      << counts << "# attended, . not, :-=+* a growing share of what a character covers\n";
  for (const FieldLayout& layout : layouts) {
    out << "\nwhat position " << position << (n.queries == n.keys ? " (O)" : "") << " sees, ";
    if (&layout == &layouts[0]) {
      out << "positions in rows of " << layout.width << "\n";
    } else {
      out << "on an image of " << layout.height << " x " << layout.width;
      out << (layout.channels > 1 ? str(", ", layout.channels, " channels side by side\n") : "\n");
    }
    out << field_text(pattern, {head, position, n, layout});
  }
  out << "\nrows: queries, columns: keys\n" << connectivity_text(pattern, head, n);
  for (const std::string& file : {options.png, options.mask_out})
    if (!file.empty()) out << "wrote " << file << "\n";
}

// `inspect --tiles` and `--explain`.
void show_tiles(const PatternView& view, const InspectOptions& options,
                const AttentionTarget& target, std::ostream& out) {
  const int64_t query = options.query.value_or(view.n.queries * 5 / 8);
  if (!options.explain.empty()) check_explained(view.n, query);
  const HeadTiles tiles(view, std::max(target.qk_size, target.v_size),
                        static_cast<int>(options.edge.value_or(0)));
  if (!options.png.empty()) write_png(options.png, tile_image(view, tiles));
  out << (options.explain.empty() ? tiles_text(view, tiles) : explain_text(view, tiles, query));
  if (!options.png.empty()) out << "\nwrote " << options.png << "\n";
}

// What the options ask of one head.
void show_head(const PatternView& view, const InspectOptions& options,
               const AttentionTarget& target, std::ostream& out) {
  if (!options.tiles.empty() || !options.explain.empty())
    return show_tiles(view, options, target, out);
  show_pattern(
      view, options, [&] { return counts_text(view, target); }, out);
}

// `inspect --arch`.
void print_kernels(const std::vector<LayerGroup>& layers, int heads, Lengths n,
                   const ArchProblem& problem, const std::string& arch, std::ostream& out) {
  out << "kernels of attention on " << arch << ": " << problem.batch << " x "
      << grouped_digits(n.queries) << " positions";
  if (n.keys != n.queries) out << ", " << grouped_digits(n.keys) << " keys";
  out << ", " << heads << (heads == 1 ? " head of " : " heads of ")
      << std::max(problem.qk_size, problem.v_size) << ", " << name_of(problem.dtype) << "\n";
  for (const LayerGroup& group : layers) {
    const std::string which = group.members.empty()
                                  ? ""
                                  : str(group.members.size() == 1 ? "layer " : "layers ",
                                        numbers_text(group.members), ": ");
    out << "\n"
        << wrapped(which + group.pattern->name(), "")
        << arch_text(*group.pattern, heads, n, problem, capability_of(arch));
  }
}

// Of patterns and those that they are made of: the files that they read.
std::vector<std::string> files_read(const std::vector<PatternSpec>& specs) {
  std::vector<std::string> files;
  for (const PatternSpec& spec : specs) {
    if (!spec.file.empty()) files.push_back(spec.file);
    for (const std::string& file : files_read(spec.of)) files.push_back(file);
  }
  return files;
}

// `inspect --attention`.
void inspect_attention(const InspectOptions& options, std::ostream& out) {
  const int64_t head_count = options.heads.value_or(1), size = options.head_size.value_or(64);
  if (head_count < 1 || head_count > 65536)
    fail("--heads must be between 1 and 65536, got ", head_count);
  if (size < 1 || size > 4096) fail("--head-size must be between 1 and 4096, got ", size);
  const PatternSpec spec = parse_pattern(options.attention, "--attention");
  check_written(options, files_read({spec}));
  const auto heads = static_cast<int>(head_count);
  const std::shared_ptr<const AttentionPattern> pattern = make_pattern(spec, heads);
  const Lengths made_for = pattern->lengths();
  if (!options.length && made_for.queries == 0)
    fail("--attention needs --length, the number of positions");
  InspectOptions chosen = options;
  if (!options.length) chosen.length = made_for.queries;
  if (!options.keys && !options.length && made_for.keys > 0) chosen.keys = made_for.keys;
  const Lengths n = lengths_of(chosen, 1);
  if ((made_for.queries > 0 && n.queries > made_for.queries) ||
      (made_for.keys > 0 && n.keys > made_for.keys))
    fail("--length: ", pattern->name(), " is made for ", made_for.queries, " queries and ",
         made_for.keys, " keys, got ", n.queries, " and ", n.keys);
  InspectOptions named = options;
  if (chosen_head(options).second.empty()) named.pattern = "0,0";
  const auto [layer, head] = read_layer_head(named, 1, head_count);
  if (chosen.grid.empty() && spec.grid.size() == 2) chosen.grid = spec.grid;
  if (!options.arch.empty())
    return print_kernels({{pattern, {}}}, heads, n,
                         {.batch = options.batch.value_or(1), .qk_size = size, .v_size = size},
                         options.arch, out);
  const std::unique_ptr<Device> device = make_device(options.device);
  const PatternView view = {*pattern, spec, heads, head, n};
  const AttentionTarget target = {size, size, device->is_cuda() ? DType::bf16 : DType::f32,
                                  device->compute_capability};
  show_head(view, chosen, target, out);
}

// What one head saw of one text, as a pattern to draw.
class SeenPattern : public AttentionPattern {
 public:
  SeenPattern(std::string name, std::vector<std::vector<int32_t>> keys)
      : name_(std::move(name)),
        keys_(std::move(keys)) {
    for (auto& of_query : keys_) std::ranges::sort(of_query);
  }

  std::string name() const override { return name_; }

  bool attends(int, int64_t i, int64_t j) const override {
    return std::ranges::binary_search(keys_.at(static_cast<std::size_t>(i)), j);
  }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    for (const int32_t key : keys_.at(static_cast<std::size_t>(i)))
      runs.push_back({key, int64_t{key} + 1, 1});
  }

 private:
  std::string name_;
  std::vector<std::vector<int32_t>> keys_;  // of each query, ascending
};

// The checkpoint of `inspect --checkpoint`. Throws Error where text is not all that its model
// takes.
std::unique_ptr<LoadedModel> load_text_model(const std::string& checkpoint) {
  auto loaded = load_model(checkpoint, "cpu");
  if (const auto told = conditions(loaded->config); !told.empty())
    fail(checkpoint, ": expected a model of text for --text; this one is told of each sequence: ",
         joined(told, ", ", &Condition::name),
         ". --config FILE --pattern LAYER,HEAD draws its patterns");
  return loaded;
}

// `inspect --checkpoint`.
void inspect_text(const InspectOptions& options, std::ostream& out) {
  const ChosenCheckpoint chosen = choose_checkpoint(options.checkpoint);
  check_written(options, {chosen.path, options.text});
  const auto loaded = load_text_model(chosen.path);
  const ModelConfig& m = loaded->config.model;
  const auto [layer, head] = read_layer_head(options, m.layers, m.heads);
  const std::vector<char> bytes = read_input(options.text, int64_t{64} << 20);
  const std::vector<int32_t> tokens = text_to_tokens({bytes.begin(), bytes.end()}, m.vocab);
  const auto length = std::min<int64_t>(std::ssize(tokens), options.length.value_or(m.context));
  if (length < 1 || length > m.context)
    fail("--length: 1 to ", m.context, " positions of ", options.text, ", got ", length);
  const Tensor text(*loaded->device->pool, {1, length}, DType::i32);
  loaded->device->upload(text, tokens.data());
  Ctx ctx = loaded->inference();
  const auto at = static_cast<std::size_t>(layer);
  const SeenKeys seen = loaded->model->seen(ctx, text, at, head);
  int64_t pairs = 0;
  for (const auto& of_query : seen.keys) pairs += std::ssize(of_query);
  std::string counts = "pairs seen " + grouped_digits(pairs);
  counts += ", executed " + grouped_digits(seen.executed) + "\n";
  counts += seen.notes;
  const SeenPattern drawn(str(loaded->model->patterns().at(at)->name(), " on ", options.text),
                          seen.keys);
  std::ostringstream drawing;  // nothing is printed before an error
  show_pattern(
      {drawn, m.attention[at % m.attention.size()], 1, head, length}, options,
      [&] { return counts; }, drawing);
  if (!chosen.text.empty()) out << chosen.text << "\n";
  out << "layer " << layer << ", " << drawing.str();
}
}  // namespace

void inspect(const InspectOptions& options, std::ostream& out) {
  check_options(options);
  if (!options.checkpoint.empty()) return inspect_text(options, out);
  if (!options.attention.empty()) return inspect_attention(options, out);
  if (chosen_head(options).second.empty() && draws(options))
    fail(
        "--png, --mask-out, --position, --columns and --grid draw one head: add --pattern "
        "LAYER,HEAD");
  const Config config = load_config(options.config, options.overrides, ConfigUse::picture);
  std::vector<std::string> read = files_read(config.model.attention);
  read.push_back(config.source);
  check_written(options, read);
  const Lengths n = lengths_of(options, config.model.context);
  const std::unique_ptr<Device> cpu = make_device("cpu"), device = make_device(options.device);
  ParameterStore store;
  const std::unique_ptr<Model> model = make_model(config, store, *cpu);
  const AttentionShape shape = attention_shape(config.model);
  const AttentionTarget target = {shape.qk_size, shape.v_size, dtype_on(*device, config),
                                  device->compute_capability, config.data.separator >= 0};
  if (!options.arch.empty()) {
    const int64_t micro_batch = config.train.batch / config.train.accumulation;
    const ArchProblem problem = {.dtype = config.precision,
                                 .batch = options.batch.value_or(micro_batch),
                                 .qk_size = shape.qk_size,
                                 .v_size = shape.v_size,
                                 .documents = config.data.separator >= 0};
    return print_kernels(layer_groups(model->patterns()), static_cast<int>(config.model.heads), n,
                         problem, options.arch, out);
  }
  if (chosen_head(options).second.empty())
    return print_report(config, *model, store, n, target, out);
  const auto [layer, head] = read_layer_head(options, config.model.layers, config.model.heads);
  const auto& specs = config.model.attention;
  const PatternView view = {*model->patterns().at(static_cast<std::size_t>(layer)),
                            specs[static_cast<std::size_t>(layer) % specs.size()],
                            static_cast<int>(config.model.heads), head, n};
  InspectOptions drawn = options;
  if (drawn.grid.empty() && config.model.position_axes.size() == 3)
    drawn.grid = config.model.position_axes;
  std::ostringstream text;  // nothing is printed before an error
  show_head(view, drawn, target, text);
  out << "layer " << layer << ", " << text.str();
}
}  // namespace weft
