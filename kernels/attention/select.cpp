// SPDX-License-Identifier: MIT
// Which CUDA kernels run attention, and why.
#include "kernels/attention/select.h"

#include <algorithm>
#include <array>
#include <string>

#include "kernels/attention/form_reasons.h"
#include "kernels/view.h"

namespace weft {
namespace {

// From the fastest to the one that covers everything.
constexpr std::array kForms{AttentionForm::hopper, AttentionForm::general, AttentionForm::simple};

constexpr std::int64_t kLongestReach = 128;  // of a sweep

struct Case {
  DType dtype;
  int edge;
  std::int64_t head_size;  // the larger of the two
  bool segments;
  int compute_capability;
  bool sweep;
};

// Measured on an H200 in nine cases of all, fixed, local and strided with its three padded head sizes:
// forward and backward together take 0.37 to 0.61 of the time of `general`, forward alone 0.37 to 0.72.
std::string reason_against_hopper(const Case& c) {
  if (const std::string why = reason_against_sm90a(c.dtype, c.compute_capability); !why.empty()) return why;
  if (c.edge != kTile && !c.sweep) return str("it takes tiles of edge ", kTile, ", got ", c.edge);
  if (c.head_size > 128) return str("it takes heads up to 128, got ", c.head_size);
  if (c.segments) return "it takes no segments";
  return "";
}

// Why a form does not cover a case; empty where it does.
std::string reason_against(AttentionForm form, const Case& c) {
  switch (form) {
    case AttentionForm::simple: return "";
    case AttentionForm::general:
      if (const std::string why = reason_against_16_bits(c.dtype); !why.empty()) return why;
      // Rows of sums and tiles of rows must fit the registers and the shared memory of a block.
      if (c.edge == kTile && c.head_size > 128)
        return str("with tiles of edge ", kTile, " it takes heads up to 128, got ", c.head_size, "; edge ",
                   kSmallTile, " takes 256");
      return "";
    case AttentionForm::hopper: return reason_against_hopper(c);
    case AttentionForm::automatic: break;
  }
  return "it is no form of its own";
}

// The copy engine takes positive strides.
bool is_copied(const HeadsView& x) {
  return (x.time_stride > 0 || x.time == 1) && (x.head_stride > 0 || x.heads == 1) &&
         (x.batch_stride > 0 || x.batch == 1);
}
bool is_copied(const AttentionBackward& g) {
  return is_copied(g.q) && is_copied(g.k) && is_copied(g.v) && is_copied(g.y) && is_copied(g.dy) &&
         is_copied(g.dq) && is_copied(g.dk) && is_copied(g.dv);
}

// Key tiles before that of a query which it may see.
std::int64_t tiles_before(const HeadsView& q, const AttentionPass& pass) {
  const std::int64_t rows = q.time / pass.band.stride;
  return std::min<std::int64_t>((pass.band.reach + kTile - 2) / kTile, (rows - 1) / kTile);
}

std::int64_t columns_of(const HeadsView& q, const AttentionPass& pass) {
  return q.batch * q.heads * pass.band.stride;
}
std::int64_t tiles_of_column(const HeadsView& q, const AttentionPass& pass) {
  return (q.time / pass.band.stride + kTile - 1) / kTile;
}
// Whole columns, of which a block takes one at a time: few columns leave multiprocessors idle, and numbers of
// longer ones do not fit the shared memory of a block. On tiles that the small form runs it is not chosen.
bool are_long_columns(const HeadsView& q, const AttentionPass& pass) {
  constexpr std::int64_t kFewestColumns = 64;
  if (!pass.band || pass.edge != kTile || pass.band.stride == 1) return false;
  const std::int64_t rows = q.time / pass.band.stride;
  return rows > kLongestReach && pass.band.reach >= rows &&
         tiles_of_column(q, pass) <= attention::kTilesOfColumn && columns_of(q, pass) >= kFewestColumns;
}

// Windows of which a query tile meets three to five key tiles, as a first pass: four consumers of the forward
// sweep hold at most eight stages, and backward the sums of dQ of four query tiles wait in shared memory. B
// 1, H 8, n 65,536, a reach of 256: 0.103 and 0.295 ms; the kernel of columns takes 0.127, two walks 0.39.
bool is_window(const HeadsView& q, const HeadsView& v, const AttentionPass& pass) {
  constexpr std::int64_t kFarthest = 4 * kTile + 1, kWidest = 64;
  if (!pass.band || pass.edge != kTile || pass.accumulate || std::max(q.size, v.size) > kWidest) return false;
  return pass.band.reach > kLongestReach && pass.band.reach <= kFarthest &&
         pass.band.reach < q.time / pass.band.stride;
}

// Windows, which the kernel of columns takes forward as a first pass where is_window() does not: a reach of
// 256, which was measured, in 0.80 of the time of the walk over tiles. Of farther ones than these products
// are nearly all the work, as there.
bool is_long_window(const AttentionForward& f, const AttentionPass& pass) {
  constexpr std::int64_t kFarthest = 512, kWidest = 64;
  if (!pass.band || pass.edge != kTile || pass.accumulate || std::max(f.q.size, f.v.size) > kWidest)
    return false;
  return pass.band.reach > kLongestReach && pass.band.reach <= kFarthest &&
         pass.band.reach < f.q.time / pass.band.stride;
}

}  // namespace

const char* name_of(AttentionForm form) {
  switch (form) {
    case AttentionForm::automatic: return "automatic";
    case AttentionForm::simple: return "simple";
    case AttentionForm::general: return "general";
    case AttentionForm::hopper: return "hopper";
  }
  return "?";
}

namespace attention {

AttentionForm parse_form(std::string_view name) {
  for (const AttentionForm form :
       {AttentionForm::automatic, AttentionForm::simple, AttentionForm::general, AttentionForm::hopper})
    if (name == name_of(form)) return form;
  fail(str("attention form: expected automatic, simple, general or hopper, got '", name, "'"));
}

// All keys of a tile of 64 queries are met at once: three tiles of scores is what the registers hold.
bool covers_band(const AttentionPass& pass, std::int64_t n) {
  return pass.band && std::min<std::int64_t>(pass.band.reach, n / pass.band.stride) <= kLongestReach;
}

// The registers hold dK and dV of each key tile that meets a query tile: of three, or of two where keys have
// more than 64 columns. The copy engine takes positive strides.
bool covers_band(const AttentionBackward& g, const AttentionPass& pass) {
  return covers_band(pass, g.q.time) && tiles_before(g.q, pass) <= (g.q.size > 64 ? 1 : 2) && is_copied(g);
}
// B 32, H 2, n 3,072, D 128, a reach of 128: 0.15 ms where two walks took 0.26.
bool covers_wide_band(const AttentionBackward& g, const AttentionPass& pass) {
  return covers_band(pass, g.q.time) && pass.edge == kTile && g.q.size > 64 && g.q.size <= 128 &&
         g.v.size <= 128 && tiles_before(g.q, pass) == 2 && is_copied(g);
}

bool covers_window(const AttentionForward& f, const AttentionPass& pass) {
  return is_window(f.q, f.v, pass) && is_copied(f.q) && is_copied(f.k) && is_copied(f.v) && is_copied(f.y);
}
bool covers_window(const AttentionBackward& g, const AttentionPass& pass) {
  return is_window(g.q, g.v, pass) && is_copied(g);
}

bool covers_columns(const AttentionForward& f, const AttentionPass& pass) {
  return (are_long_columns(f.q, pass) || is_long_window(f, pass)) && is_copied(f.q) && is_copied(f.k) &&
         is_copied(f.v) && is_copied(f.y);
}
// The registers of a warpgroup hold dK and dV of a key tile of heads up to 64.
bool covers_columns(const AttentionBackward& g, const AttentionPass& pass) {
  return are_long_columns(g.q, pass) && g.q.size <= 64 && g.v.size <= 64 && is_copied(g);
}
// Sums of dQ for each block, of which there is one for each multiprocessor.
std::int64_t columns_scratch(const AttentionBackward& g, const AttentionPass& pass) {
  constexpr std::int64_t kMostBlocks = 144;  // no GPU of that architecture has more multiprocessors
  const std::int64_t tiles = tiles_of_column(g.q, pass);
  return tiles > kTilesInRegisters ? std::min(kMostBlocks, columns_of(g.q, pass)) * tiles * kTile * 64 : 0;
}
bool takes_columns(const AttentionBackward& g, const AttentionPass& pass) {
  return covers_columns(g, pass) && (g.scratch.data || columns_scratch(g, pass) == 0);
}

// Larger heads have no registers to spare. The copy engine brings rows that follow each other.
bool covers_fused(const AttentionBackward& g) {
  const AttentionPass& pass = g.maps.pass[0];
  return g.maps.passes == 1 && pass.edge == kTile && !sweeps(g, pass) && g.q.size <= 64 && g.v.size <= 64 &&
         pass.query_run >= 8 && pass.key_run >= 8;
}
// Measured on an H200, in parts of the time of two walks. 32 or 64 pairs of batch and head: 0.95 or 0.96 with
// 14 key tiles for each query tile (`fixed`, 6,144 positions), 0.90 to 0.97 with 18, 0.87 to 0.91 with 26
// (12,288), 0.85 with 96 (`all`), but 0.98 with 8 (`fixed`, 3,072), where rows are much of the work. With 96
// pairs 1.07, with 128 pairs 1.24: as we read it, too much for the second-level cache comes between two turns
// of a tile.
bool gains_by_fused(const AttentionBackward& g) {
  constexpr std::int64_t kLeastTiles = 13, kMostPairs = 64;
  const AttentionPass& pass = g.maps.pass[0];
  return pass.visited >= kLeastTiles * pass.query_tiles && g.q.batch * g.q.heads <= kMostPairs;
}
// Sums of dQ and a turn for each tile of queries, two numbers for each row.
std::int64_t fused_scratch(const AttentionBackward& g) {
  const std::int64_t pairs = g.q.batch * g.q.heads;
  return pairs * (g.maps.pass[0].query_tiles * (std::int64_t{kTile} * 64 + 1) + 2 * g.q.time);
}

AttentionForm choose_form(AttentionForm wanted, DType dtype, int edge, std::int64_t qk_size,
                          std::int64_t v_size, bool segments, int compute_capability, bool sweep) {
  const Case c{dtype, edge, std::max(qk_size, v_size), segments, compute_capability, sweep};
  std::string covering;
  for (const AttentionForm form : kForms) {
    if (!reason_against(form, c).empty()) continue;
    if (wanted == AttentionForm::automatic || wanted == form) return form;
    covering += str(covering.empty() ? "" : ", ", name_of(form));
  }
  fail(str("attention form '", name_of(wanted), "' does not run this: ", reason_against(wanted, c), "; ",
           covering, " and automatic work"));
}

}  // namespace attention
}  // namespace weft
