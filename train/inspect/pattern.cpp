// SPDX-License-Identifier: MIT
// Counts and pictures of one head.
#include "train/inspect/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "src/config/config.h"
#include "src/device.h"
#include "src/memory.h"
#include "src/patterns/pattern.h"
#include "train/inspect/picture.h"
#include "train/program/progress.h"

namespace weft {
namespace {

// Positions in a row of the receptive field when nobody says: what the pattern repeats itself after.
std::int64_t natural_columns(const PatternSpec& spec, std::int64_t keys) {
  if (!spec.grid.empty()) return spec.grid.back();
  if (!spec.of.empty()) return natural_columns(spec.of[0], keys);
  const std::vector<std::string> fields = fields_read(spec);
  const auto reads = [&](const char* field) {
    return std::find(fields.begin(), fields.end(), field) != fields.end();
  };
  if (reads("stride")) return spec.stride;
  if (reads("block") && spec.block > 0) return spec.block;
  return static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(keys))));
}

// A position well inside the sequence and inside its row.
std::int64_t typical_position(std::int64_t length, std::int64_t row_length) {
  if (row_length >= length) return length * 5 / 8;
  return std::min(length - 1, length * 5 / 8 / row_length * row_length + row_length * 5 / 8);
}

std::string counts_text(const PatternView& view, const AttentionTarget& target) {
  const std::vector<AttentionCounts> groups = count_attention(view.pattern, view.heads, view.n, target);
  AttentionCounts counts = groups.at(static_cast<std::size_t>(view.pattern.group(view.head)));
  const auto alike = static_cast<std::int64_t>(counts.heads.size());
  counts.pairs.needed /= alike;
  counts.pairs.executed /= alike;
  counts.heads = {view.head};
  std::vector<std::vector<std::string>> rows = {attention_columns(), attention_row(counts, view.n)};
  for (auto& row : rows) row.erase(row.begin());  // the layers
  return text_table(rows, 2);
}

}  // namespace

std::vector<std::string> attention_columns() {
  return {"layers",      "heads", "pattern", "pairs needed", "executed", "waste", "density",
          "keys: least", "mean",  "most",    "cache rows",   "tiles",    "form",  "tables"};
}

std::vector<std::string> attention_row(const AttentionCounts& counts, Lengths n) {
  const double all =
      static_cast<double>(n.queries) * static_cast<double>(n.keys) * static_cast<double>(counts.heads.size());
  return {"",
          numbers_text(counts.heads),
          counts.pattern,
          grouped_digits(counts.pairs.needed),
          grouped_digits(counts.pairs.executed),
          fixed_text(counts.pairs.waste(), 3),
          fixed_text(100 * static_cast<double>(counts.pairs.needed) / all, 2) + "%",
          grouped_digits(counts.keys_min),
          fixed_text(counts.keys_mean, 1),
          grouped_digits(counts.keys_max),
          counts.cache_rows > 0 ? grouped_digits(counts.cache_rows) : "-",
          counts.edges_text(),
          counts.form_text(),
          bytes_text(counts.table_bytes)};
}

Lengths lengths_of(const InspectOptions& options, std::int64_t otherwise) {
  const Lengths n(options.length.value_or(otherwise),
                  options.keys.value_or(options.length.value_or(otherwise)));
  for (const auto& [name, value] : {std::pair{"--length", n.queries}, {"--keys", n.keys}})
    if (value < 1 || value > kMaxPositions)
      fail(str(name, " must be between 1 and ", kMaxPositions, ", got ", value));
  return n;
}

std::pair<std::int64_t, int> read_layer_head(const std::string& text, std::int64_t layers,
                                             std::int64_t heads) {
  long long layer = -1;
  int head = -1, used = 0;
  const bool read = std::sscanf(text.c_str(), "%lld,%d%n", &layer, &head, &used) == 2;
  if (!read || used != static_cast<int>(text.size()) || layer < 0 || layer >= layers || head < 0 ||
      head >= heads)
    fail(str("--pattern takes LAYER,HEAD with a layer from 0 to ", layers - 1, " and a head from 0 to ",
             heads - 1, ", got '", text, "'"));
  return {layer, head};
}

bool draws(const InspectOptions& o) {
  return !o.png.empty() || !o.mask_out.empty() || o.position || o.columns || !o.grid.empty();
}

void show_pattern(const PatternView& view, const InspectOptions& options, const AttentionTarget& target,
                  std::ostream& out) {
  const auto& [pattern, spec, heads, head, n] = view;
  const std::int64_t columns = options.columns.value_or(natural_columns(spec, n.keys));
  if (columns < 1) fail(str("--columns must be at least 1, got ", columns));
  const std::int64_t position = options.position.value_or(typical_position(n.queries, columns));
  if (position < 0 || position >= n.queries)
    fail(str("--position must be between 0 and ", n.queries - 1, " (the length is ", n.queries, "), got ",
             position));
  std::vector<FieldLayout> layouts = {FieldLayout::in_rows(n.keys, columns)};
  if (!options.grid.empty()) layouts.push_back(FieldLayout::image(n.keys, options.grid));
  if (!options.mask_out.empty()) write_mask_npy(options.mask_out, pattern, head, n);
  if (!options.png.empty())
    write_png(options.png, pattern_image(pattern, {head, n, position, columns, options.grid}));
  out << "head " << head << ": " << pattern.name() << ", " << grouped_digits(n.queries) << " positions";
  if (n.keys != n.queries) out << ", " << grouped_digits(n.keys) << " keys";
  out << "\n"
      << counts_text(view, target) << "# attended, . not, :-=+* a growing share of what a character covers\n";
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

void inspect_attention(const InspectOptions& options, std::ostream& out) {
  if (!options.overrides.empty()) fail("--set changes a config: it does not go with --attention");
  if (options.heads < 1 || options.heads > 65536)
    fail(str("--heads must be between 1 and 65536, got ", options.heads));
  if (options.head_size < 1 || options.head_size > 4096)
    fail(str("--head-size must be between 1 and 4096, got ", options.head_size));
  const PatternSpec spec = parse_pattern(options.attention, "--attention");
  const auto heads = static_cast<int>(options.heads);
  const std::unique_ptr<AttentionPattern> pattern = make_pattern(spec, heads);
  const Lengths made_for = pattern->lengths();
  if (!options.length && made_for.queries == 0) fail("--attention needs --length, the number of positions");
  InspectOptions chosen = options;
  if (!options.length) chosen.length = made_for.queries;
  if (!options.keys && !options.length && made_for.keys > 0) chosen.keys = made_for.keys;
  const Lengths n = lengths_of(chosen, 1);
  if ((made_for.queries > 0 && n.queries > made_for.queries) || (made_for.keys > 0 && n.keys > made_for.keys))
    fail(str("--length: ", pattern->name(), " is made for ", made_for.queries, " queries and ", made_for.keys,
             " keys, got ", n.queries, " and ", n.keys));
  const auto [layer, head] =
      read_layer_head(options.pattern.empty() ? "0,0" : options.pattern, 1, options.heads);
  if (chosen.grid.empty() && spec.grid.size() == 2) chosen.grid = spec.grid;
  const std::unique_ptr<Device> device = make_device(options.device);
  show_pattern({*pattern, spec, heads, head, n}, chosen,
               {options.head_size, options.head_size, device->is_cuda() ? DType::bf16 : DType::f32,
                device->compute_capability},
               out);
}

}  // namespace weft
