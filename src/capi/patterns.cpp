// SPDX-License-Identifier: MIT
// Patterns from the structs of the C interface.
#include "src/capi/handles.h"
#include "src/patterns/more/layout.h"
#include "src/patterns/pattern.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
// Stands in for HDF5, which the C library does not link.
BlockLayout read_hdf5_layout(const std::string& path, const std::string&) {
  fail(path, ": is not a .npy file, and this library reads no others; pass the layout in memory");
}
}  // namespace weft

namespace weft::capi {
namespace {
constexpr std::size_t kLongestArray = std::size_t{1} << 24;

void check_heads(int32_t heads) {
  require(heads >= 1 && heads <= kMaxHeads, "heads must be 1 to ", kMaxHeads, ", got ", heads);
}

template <class T>
void check_array(const std::string& name, const T* values, std::size_t count) {
  require(count <= kLongestArray, name, "_count is ", count, ", at most ", kLongestArray,
          " are taken");
  require(values != nullptr || count == 0, name, " is NULL and ", name, "_count is ", count);
}

std::vector<int64_t> list(const std::string& name, const int64_t* values, std::size_t count) {
  check_array(name, values, count);
  return {values, values + count};
}

PatternSpec converted(const std::string& where, const weft_pattern_spec* given, int depth) {
  const weft_pattern_spec& s = checked_struct(where.c_str(), given);
  require(s.kind != nullptr, where, ".kind is NULL; try \"fixed\"");
  require(depth < kMaxPatternNesting, where, ": `of` is nested more than ", kMaxPatternNesting,
          " deep");
  if (s.kind == std::string("layout"))
    unsupported(where, ".kind: a layout is given to weft_pattern_create_layout()");
  PatternSpec spec;
  spec.kind = s.kind;
  spec.stride = s.stride;
  spec.c = s.c;
  spec.num_verts = s.num_verts;
  spec.block = s.block;
  spec.vertsize = s.vertsize;
  spec.causal = s.causal != 0;
  check_array(where + ".of", s.of, s.of_count);
  require(s.of_count <= static_cast<std::size_t>(kMaxHeads), where, ".of_count is ", s.of_count,
          ", at most ", kMaxHeads, " are taken");
  for (std::size_t i = 0; i < s.of_count; ++i)
    spec.of.push_back(converted(str(where, ".of[", i, "]"), s.of[i], depth + 1));
  spec.prefix = s.prefix;
  spec.documents = list(where + ".documents", s.documents, s.documents_count);
  spec.length = s.length;
  spec.window = s.window;
  if (s.dilation_count > 0) spec.dilation = list(where + ".dilation", s.dilation, s.dilation_count);
  spec.globals = list(where + ".globals", s.globals, s.globals_count);
  spec.random = s.random;
  spec.seed = s.seed;
  spec.grid = list(where + ".grid", s.grid, s.grid_count);
  spec.filter = list(where + ".filter", s.filter, s.filter_count);
  spec.step = s.step;
  spec.transposed = s.transposed != 0;
  return spec;
}

std::unique_ptr<weft_pattern> handle(std::unique_ptr<AttentionPattern> pattern, int32_t heads) {
  const std::string name = pattern->name();
  return std::make_unique<weft_pattern>(weft_pattern{std::move(pattern), heads, name});
}
}  // namespace

std::unique_ptr<weft_pattern> make_named(const weft_pattern_spec* spec, int32_t heads) {
  const PatternSpec checked = converted("spec", spec, 0);
  check_heads(heads);
  auto pattern = make_pattern(checked, heads);
  return handle(std::move(pattern), heads);
}

std::unique_ptr<weft_pattern> make_layout(const weft_layout* given, int32_t heads) {
  const weft_layout& l = checked_struct("layout", given);
  check_heads(heads);
  require(l.active != nullptr, "layout.active is NULL");
  require(l.heads == 1 || l.heads == heads, "layout.heads must be 1 or heads = ", heads, ", got ",
          l.heads);
  require(l.block == 8 || l.block == 16 || l.block == 32 || l.block == 64,
          "layout.block must be 8, 16, 32 or 64, got ", l.block);
  for (const auto& [name, blocks] :
       {std::pair{"q_blocks", l.q_blocks}, std::pair{"k_blocks", l.k_blocks}})
    require(blocks >= 1 && blocks <= kMaxPositions / l.block, "layout.", name, " must be 1 to ",
            kMaxPositions / l.block, ", got ", blocks);
  const __int128 bytes = static_cast<__int128>(l.heads) * l.q_blocks * l.k_blocks;
  require(bytes <= (int64_t{1} << 40), "layout: heads * q_blocks * k_blocks is more than 2^40");
  BlockLayout layout;
  layout.heads = l.heads;
  layout.query_blocks = l.q_blocks;
  layout.key_blocks = l.k_blocks;
  layout.block = l.block;
  layout.active.assign(l.active, l.active + static_cast<int64_t>(bytes));
  layout.causal = l.causal != 0;
  if (l.keep)
    layout.keep = [keep = l.keep, user = l.user](int head, int64_t i, int64_t j) {
      return keep(user, head, i, j) != 0;
    };
  layout.source = "layout";
  return handle(layout_pattern(layout, heads), heads);
}

void write_mask(const weft_pattern& p, int32_t head, int64_t n_q, int64_t n_k, uint8_t* mask) {
  require(head >= 0 && head < p.heads, "head must be 0 to ", p.heads - 1, ", got ", head);
  const Lengths made_for = p.pattern->lengths();
  require(n_q >= 1 && n_q <= (made_for.queries ? made_for.queries : kMaxPositions),
          "n_q must be 1 to ", made_for.queries ? made_for.queries : kMaxPositions, ", got ", n_q);
  require(n_k >= 1 && n_k <= (made_for.keys ? made_for.keys : kMaxPositions), "n_k must be 1 to ",
          made_for.keys ? made_for.keys : kMaxPositions, ", got ", n_k);
  require(mask != nullptr, "mask is NULL");
  for (int64_t i = 0; i < n_q; ++i)
    for (int64_t j = 0; j < n_k; ++j) mask[i * n_k + j] = p.pattern->attends(head, i, j) ? 1 : 0;
}
}  // namespace weft::capi
