// SPDX-License-Identifier: MIT
#include "train/inspect/arch.h"

#include "kernels/attention/select.h"
#include "src/attention_maps.h"
#include "src/config/names.h"
#include "src/patterns/pattern.h"
#include "train/inspect/tile_text.h"
#include "train/program/counts.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace weft {
namespace {
struct Arch {
  const char* name;
  int compute_capability;
  const char* cards;
};

constexpr Arch kArchs[] = {
    {"sm_80", 80, "A100"},          {"sm_86", 86, "RTX 3090, A40"}, {"sm_89", 89, "RTX 4090, L40"},
    {"sm_90a", 90, "H100 or H200"}, {"sm_100", 100, "B200"},        {"sm_120", 120, "RTX 5090"},
};

// Heads of a packed row of `columns` numbers; no kernel reads them.
HeadsView heads_in(int64_t columns, int64_t size, int64_t heads, int64_t time,
                   const ArchProblem& x) {
  return {nullptr, x.dtype, x.batch, time, heads, size, time * columns, columns, size};
}

// The heads of the layer that compute something in a pass.
std::vector<int64_t> heads_of_pass(const PackedMaps& maps, int pass) {
  std::vector<int64_t> heads;
  for (std::size_t h = 0; h < maps.group_of_head().size(); ++h)
    if (maps.tables(pass, maps.group_of_head()[h])) heads.push_back(static_cast<int64_t>(h));
  return heads;
}

// What those heads compute in it.
std::string part_of_pass(const AttentionPattern& pattern, const PackedMaps& maps, int pass) {
  const auto head = static_cast<int>(heads_of_pass(maps, pass).at(0));
  std::size_t earlier = 0;
  for (int before = 0; before < pass; ++before)
    earlier += maps.tables(before, pattern.group(head)) != nullptr;
  std::vector<PatternPart> parts;
  pattern.parts(head, parts);
  return parts.at(earlier).pattern->name();
}

std::string band_text(const Band& band) {
  return band ? str("stride ", band.stride, ", reach ", band.reach) : "-";
}
}  // namespace

int capability_of(const std::string& arch) {
  for (const Arch& known : kArchs)
    if (arch == known.name) return known.compute_capability;
  fail("--arch: expected ",
       joined(kArchs, ", ", [](const Arch& a) { return str(a.name, " (", a.cards, ")"); }),
       ", got '", arch, "'");
}

std::vector<PassKernels> kernels_on(int compute_capability, const PackedMaps& packed, int heads,
                                    Lengths n, const ArchProblem& x) {
  static constexpr int32_t kSomeReach = 1;
  std::vector<char> image(packed.bytes());
  AttentionForward f;
  f.maps = packed.write(image.data(), image.data());
  for (int p = 0; p < f.maps.passes; ++p)
    if (x.documents && f.maps.pass[p].band) f.maps.pass[p].reaches = &kSomeReach;
  const int64_t columns = heads * (2 * x.qk_size + x.v_size);
  f.q = heads_in(columns, x.qk_size, heads, n.queries, x);
  f.k = heads_in(columns, x.qk_size, heads, n.keys, x);
  f.v = heads_in(columns, x.v_size, heads, n.keys, x);
  f.y = heads_in(heads * x.v_size, x.v_size, heads, n.queries, x);
  using namespace attention;
  constexpr bool kBuilt = true;  // as for every GPU that is named
  AttentionBackward g = backward_of(f, f.q, f.k, f.v, {}, f.y);
  // As in training. Whether the address is null is all that select() asks of scratch memory.
  if (wanted_scratch(g, compute_capability, Scratch::kWhereFaster, kBuilt) > 0) g.scratch.data = &g;
  std::vector<PassKernels> kernels;
  for (int p = 0; p < f.maps.passes; ++p) {
    const auto name = [&](const auto& of) {
      return name_of(select(Problem::of(of), of.maps.pass[p], compute_capability, kBuilt));
    };
    kernels.push_back({name(f), name(g)});
  }
  return kernels;
}

std::string arch_text(const AttentionPattern& pattern, int heads, Lengths n, const ArchProblem& x,
                      int compute_capability) {
  const PackedMaps maps(pattern, heads, n, std::max(x.qk_size, x.v_size));
  const std::vector<PassKernels> kernels = kernels_on(compute_capability, maps, heads, n, x);
  std::vector<std::vector<std::string>> rows = {
      {"pass", "heads", "band", "forward", "backward", "edge"}};
  for (int pass = 0; pass < maps.passes(); ++pass) {
    const std::vector<int64_t> of_pass = heads_of_pass(maps, pass);
    const TileTables* tables = maps.tables(pass, maps.group_of_head()[of_pass.at(0)]);
    rows.push_back({std::to_string(pass + 1), numbers_text(of_pass), band_text(maps.band(pass)),
                    kernels[pass].forward, kernels[pass].backward, std::to_string(tables->edge)});
  }
  std::vector<int64_t> by_content;
  for (int head = 0; head < heads; ++head)
    if (pattern.most_keys(head) > 0) by_content.push_back(head);
  std::string text = maps.passes() > 0 ? text_table(rows, 5) : "";
  for (int pass = 0; pass < maps.passes() && maps.passes() > 1; ++pass)
    text += wrapped(str("pass ", pass + 1, ": ", part_of_pass(pattern, maps, pass)), "  ");
  if (!by_content.empty())
    text += str("  heads by content: ", numbers_text(by_content),
                "; their kernels are chosen for the maps of each batch\n");
  return text;
}
}  // namespace weft
