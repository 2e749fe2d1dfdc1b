// SPDX-License-Identifier: MIT
// Which CUDA kernels run attention, and why.
#include "kernels/attention/select.h"

#include "kernels/view.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>

namespace weft {
const char* name_of(AttentionForm form) {
  constexpr const char* kNames[] = {"automatic", "simple", "general", "hopper"};
  return kNames[static_cast<int>(form)];
}

namespace attention {
namespace {
// From the fastest to the one that covers everything. On an H200 `hopper` takes 0.37 to 0.61 of the
// time of `general`, over all, fixed, local and strided with three padded head sizes.
constexpr std::array kForms{AttentionForm::hopper, AttentionForm::general, AttentionForm::simple};

constexpr int64_t kBandReach = 128;  // rows of a band whose keys all meet a query tile at once

// TMA takes positive strides below 2^40 bytes.
bool tma_takes(const HeadsView& x) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto takes = [&](int64_t stride, int64_t extent) {
    return extent == 1 || (stride > 0 && stride * size_of(x.dtype) < kMost);
  };
  return takes(x.time_stride, x.time) && takes(x.head_stride, x.heads) &&
         takes(x.batch_stride, x.batch);
}

bool tma_takes(std::initializer_list<const HeadsView*> views) {
  return std::all_of(views.begin(), views.end(), [](const HeadsView* x) { return tma_takes(*x); });
}

int64_t rows_of_column(const Problem& x, const AttentionPass& pass) {
  return x.time / pass.band.stride;
}

int64_t tiles_of_column(const Problem& x, const AttentionPass& pass) {
  return (rows_of_column(x, pass) + kTile - 1) / kTile;
}

int64_t columns_of(const Problem& x, const AttentionPass& pass) {
  return x.batch * x.heads * pass.band.stride;
}

int64_t head_size(const Problem& x) { return std::max(x.qk_size, x.v_size); }

// The registers hold three tiles of scores, or dK and dV of three key tiles (two above 64 columns).
bool covers_band(const Problem& x, const AttentionPass& pass) {
  if (!pass.band || !x.tma ||
      std::min<int64_t>(pass.band.reach, rows_of_column(x, pass)) > kBandReach)
    return false;
  const int64_t before =  // key tiles before that of a query which it may see
      std::min<int64_t>((pass.band.reach + kTile - 2) / kTile,
                        (rows_of_column(x, pass) - 1) / kTile);
  return !x.backward || before <= (x.qk_size > 64 ? 1 : 2);
}

// B 32, H 2, n 3,072, D 128, a reach of 128: 0.15 ms where the list kernels take 0.26.
bool covers_head128(const Problem& x, const AttentionPass& pass) {
  Problem forward = x;
  forward.backward = false;
  return x.backward && covers_band(forward, pass) && pass.edge == kTile && x.qk_size > 64 &&
         head_size(x) <= 128;
}

// Windows of three to five key tiles a query tile, as a first pass: dQ of four query tiles waits in
// shared memory. B 1, H 8, n 65,536, reach 256: 0.103 and 0.295 ms; column takes 0.127 forward,
// lists 0.39 backward.
bool covers_window(const Problem& x, const AttentionPass& pass) {
  return pass.band && !pass.reaches && x.tma && pass.edge == kTile && !pass.accumulate &&
         head_size(x) <= 64 && pass.band.reach > kBandReach && pass.band.reach <= 4 * kTile + 1 &&
         pass.band.reach < rows_of_column(x, pass);
}

// Whole residue columns, one at a time a block: few columns leave multiprocessors idle, and lse and
// delta of longer ones do not fit shared memory. Backward, the registers hold heads up to 64.
bool covers_whole_columns(const Problem& x, const AttentionPass& pass) {
  constexpr int64_t kFewestColumns = 64;
  if (!pass.band || pass.reaches || !x.tma || pass.edge != kTile || pass.band.stride == 1)
    return false;
  if (x.backward && head_size(x) > 64) return false;
  const int64_t rows = rows_of_column(x, pass);
  return rows > kBandReach && pass.band.reach >= rows &&
         tiles_of_column(x, pass) <= kTilesOfColumn && columns_of(x, pass) >= kFewestColumns;
}

// Windows beyond covers_window(), forward as a first pass: at a reach of 256 0.80 of the list
// kernel's time.
bool covers_far_window(const Problem& x, const AttentionPass& pass) {
  constexpr int64_t kFarthest = 512;
  return !x.backward && pass.band && !pass.reaches && x.tma && pass.edge == kTile &&
         !pass.accumulate && head_size(x) <= 64 && pass.band.reach > kBandReach &&
         pass.band.reach <= kFarthest && pass.band.reach < rows_of_column(x, pass);
}

// TMA wants rows that follow each other. Queries and keys of up to 64 with larger values are left
// to two kernels: padded to 128, half of the products of scores and of dQ would be of zeros.
bool covers_fused(const Problem& x, const AttentionPass& pass) {
  return x.backward && x.only_pass && x.tma_inputs && pass.edge == kTile &&
         (head_size(x) <= 64 || (x.qk_size > 64 && head_size(x) <= 128)) && pass.query_run >= 8 &&
         pass.key_run >= 8;
}

// On an H200, in parts of the time of the two list kernels. 32 or 64 pairs of batch and head: 0.95
// with 14 key tiles a query tile (`fixed`, 6,144 positions), 0.85 with 96 (`all`), but 0.98 with 8
// (`fixed`, 3,072). 96 pairs take 1.07, 128 pairs 1.24: dQ tiles seem to leave the L2 cache between
// two additions. Heads of 128 take groups of pairs, which stay in that cache: 0.92 with 256 key
// tiles a query tile (`all`), 0.95 with 32, but 1.04 with 24, and 1.03 to 1.2 for `fixed`.
bool gains_by_fused(const Problem& x, const AttentionPass& pass) {
  constexpr int64_t kLeastTiles = 13, kLeastTilesOf128 = 28, kMostPairs = 64;
  if (x.qk_size > 64) return pass.visited >= kLeastTilesOf128 * pass.query_tiles;
  return pass.visited >= kLeastTiles * pass.query_tiles && x.batch * x.heads <= kMostPairs;
}

std::string reason_against_hopper(const Problem& x, const AttentionPass& pass,
                                  int compute_capability, bool built) {
  if (!added_kernel(Kernel::hopper)) return "this build leaves its kernels out";
  if (const std::string why = reason_against_sm90a(x.dtype, compute_capability, built);
      !why.empty())
    return why;
  if (pass.edge != kTile && !covers_band(x, pass))
    return str("it takes tiles of edge ", kTile, ", got ", pass.edge);
  if (head_size(x) > 128) return str("it takes heads up to 128, got ", head_size(x));
  return x.segments ? "it takes no segments" : "";
}

std::string reason_against_general(const Problem& x, const AttentionPass& pass) {
  if (const std::string why = reason_against_16_bits(x.dtype); !why.empty()) return why;
  const bool small_tiles = added_kernel(Kernel::general_small_tiles) != nullptr;
  if (pass.edge != kTile)
    return small_tiles ? "" : str("it takes tiles of edge ", kTile, ", got ", pass.edge);
  if (head_size(x) <= 128) return "";
  // Accumulators and tiles of rows must fit the registers and the shared memory of a thread block.
  return str("with tiles of edge ", kTile, " it takes heads up to 128, got ", head_size(x),
             small_tiles ? str("; edge ", kSmallTile, " takes 256") : "");
}

// Why a form does not cover a case; empty where it does.
std::string reason_against(AttentionForm form, const Problem& x, const AttentionPass& pass,
                           int compute_capability, bool built_for_sm90a) {
  switch (form) {
    case AttentionForm::simple: return "";
    case AttentionForm::general: return reason_against_general(x, pass);
    case AttentionForm::hopper:
      return reason_against_hopper(x, pass, compute_capability, built_for_sm90a);
    case AttentionForm::automatic: break;
  }
  return "it is no form of its own";
}

Kernel kernel_of(AttentionForm form, const Problem& x, const AttentionPass& pass) {
  if (form == AttentionForm::hopper) return hopper_kernel(x, pass);
  if (form == AttentionForm::simple) return Kernel::simple;
  return pass.edge == kTile ? Kernel::general : Kernel::general_small_tiles;
}

// Of what forward and backward have in common.
template <class Parameters>
Problem problem_of(const Parameters& x) {
  return {
      .form = x.form,
      .dtype = x.q.dtype,
      .batch = x.q.batch,
      .heads = x.q.heads,
      .time = x.q.time,
      .qk_size = x.q.size,
      .v_size = x.v.size,
      .segments = static_cast<bool>(x.segments),
      .only_pass = x.maps.passes == 1,
      .tma = tma_takes({&x.q, &x.k, &x.v, &x.y}),
      .tma_inputs = tma_takes({&x.q, &x.k, &x.v}),
  };
}

template <class Parameters>
std::string text_of(const Parameters& x, int compute_capability) {
  std::string text;
  for (int p = 0; p < x.maps.passes; ++p)
    text +=
        str(p ? " + " : "", name_of(select(Problem::of(x), x.maps.pass[p], compute_capability)));
  return text;
}
}  // namespace

namespace {
std::optional<KernelLaunchers>& added(Kernel kernel) {
  static std::array<std::optional<KernelLaunchers>, kKernels> kernels;
  return kernels[static_cast<std::size_t>(kernel)];
}
}  // namespace

void add_kernel(Kernel kernel, const KernelLaunchers& launchers) { added(kernel) = launchers; }

const KernelLaunchers* added_kernel(Kernel kernel) {
  register_kernel_parts();
  const auto& launchers = added(kernel);
  return launchers ? &*launchers : nullptr;
}

AttentionForm parse_form(std::string_view name) {
  for (const AttentionForm form : {AttentionForm::automatic, AttentionForm::simple,
                                   AttentionForm::general, AttentionForm::hopper})
    if (name == weft::name_of(form)) return form;
  fail(str("attention form: expected automatic, simple, general or hopper, got '", name, "'"));
}

const char* name_of(Kernel kernel) {
  constexpr const char* kNames[] = {"simple",         "general",       "general/small_tiles",
                                    "hopper",         "hopper/fused",  "hopper/band",
                                    "hopper/head128", "hopper/window", "hopper/column"};
  return kNames[static_cast<int>(kernel)];
}

Problem Problem::of(const AttentionForward& f) { return problem_of(f); }

Problem Problem::of(const AttentionBackward& g) {
  Problem x = problem_of(g);
  x.backward = true;
  x.scratch = static_cast<bool>(g.scratch.data);
  x.tma = x.tma && tma_takes({&g.dy, &g.dq, &g.dk, &g.dv});
  x.tma_inputs = x.tma_inputs && tma_takes({&g.dy});
  return x;
}

Kernel select(const Problem& x, const AttentionPass& pass, int compute_capability,
              bool built_for_sm90a) {
  const auto reason = [&](AttentionForm form) {
    return reason_against(form, x, pass, compute_capability, built_for_sm90a);
  };
  std::string covering;
  for (const AttentionForm form : kForms) {
    if (!reason(form).empty()) continue;
    if (x.form == AttentionForm::automatic || x.form == form) return kernel_of(form, x, pass);
    covering += str(covering.empty() ? "" : ", ", weft::name_of(form));
  }
  fail(str("attention form '", weft::name_of(x.form), "' does not run this: ", reason(x.form), "; ",
           covering, " and automatic work"));
}

Kernel hopper_kernel(const Problem& x, const AttentionPass& pass) {
  const auto has_scratch = [&](Kernel kernel) {
    return x.scratch || scratch_of(kernel, x, pass) == 0;
  };
  if (covers_band(x, pass)) return Kernel::hopper_band;
  if (covers_head128(x, pass)) return Kernel::hopper_head128;
  if (covers_window(x, pass)) return Kernel::hopper_window;
  if (covers_far_window(x, pass)) return Kernel::hopper_column;
  if (covers_whole_columns(x, pass) && has_scratch(Kernel::hopper_column))
    return Kernel::hopper_column;
  if (covers_fused(x, pass) && has_scratch(Kernel::hopper_fused)) return Kernel::hopper_fused;
  return Kernel::hopper;
}

int64_t scratch_of(Kernel kernel, const Problem& x, const AttentionPass& pass) {
  if (!x.backward) return 0;
  const int64_t pairs = x.batch * x.heads;
  // dQ of each query tile, how many tasks have added to it, and two numbers for each row.
  if (kernel == Kernel::hopper_fused) {
    const int64_t columns = x.qk_size > 64 ? 128 : 64;
    return pairs * (pass.query_tiles * (kTile * columns + 1) + 2 * x.time);
  }
  if (kernel != Kernel::hopper_column || tiles_of_column(x, pass) <= kTilesInRegisters) return 0;
  // dQ of a column for each thread block, of which there is one for each multiprocessor.
  constexpr int64_t kMostBlocks = 144;  // no GPU of that architecture has more multiprocessors
  return std::min(kMostBlocks, columns_of(x, pass)) * tiles_of_column(x, pass) * kTile * 64;
}

int64_t wanted_scratch(const AttentionBackward& g, int compute_capability, Scratch wish,
                       bool built_for_sm90a) {
  Problem x = Problem::of(g);
  x.scratch = true;
  int64_t elements = 0;
  for (int p = 0; p < g.maps.passes; ++p) {
    const Kernel kernel = select(x, g.maps.pass[p], compute_capability, built_for_sm90a);
    if (kernel == Kernel::hopper_fused && wish == Scratch::kWhereFaster &&
        !gains_by_fused(x, g.maps.pass[p]))
      continue;
    elements = std::max(elements, scratch_of(kernel, x, g.maps.pass[p]));
  }
  return elements;
}

bool writes_delta(Kernel first, int passes) {
  switch (first) {
    case Kernel::hopper_band:
    case Kernel::hopper_head128:
    case Kernel::hopper_window:
    case Kernel::hopper_column: return true;
    case Kernel::hopper:
    case Kernel::hopper_fused: return passes == 1;
    case Kernel::simple:
    case Kernel::general:
    case Kernel::general_small_tiles: return false;
  }
  fail("no such kernel");
}

std::string kernels_text(const AttentionForward& f, const AttentionBackward& g,
                         int compute_capability) {
  const std::string there = text_of(f, compute_capability), back = text_of(g, compute_capability);
  return there == back ? there : there + "; backward " + back;
}
}  // namespace attention
}  // namespace weft
