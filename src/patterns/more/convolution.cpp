// SPDX-License-Identifier: MIT
// convolution: the window of a convolution with stride s = `step` over a grid, as blocksparse's
// convolution layouts have it. Keys are a grid of H x W positions ([W] is 1 x W), queries the grid
// of (H / s) x (W / s) outputs, both row after row; the filter has R x S taps.
//   S_(p, q) = {(h, w) in the grid : 0 <= h - p s + pad(R) < R, 0 <= w - q s + pad(S) < S}
//   pad(R) = max(0, ceil((R - s) / 2)): the least padding that gives H / s outputs
// A grid of one row has R = 1 and one row of outputs. Autoregressive (`causal`): only keys up to
// the one that the query stands on, h W + w <= p s W + q s. `transposed` swaps queries and keys: H
// x W queries see the outputs whose window holds them; autoregressive: those that stand on the
// query or before it. Slots: grids of more than one row in patches of 8 x 8, those in patches of 4
// x 4, for a window holds neighbours in both directions.
#include "src/patterns/pattern.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kPatch = 8, kSmallPatch = 4;  // kPatch^2 = kTile, kSmallPatch^2 = kSmallTile

struct Grid {
  int64_t height = 1, width = 1;

  int64_t size() const { return height * width; }

  // Patches row by row, each of kPatch rows but the last; cut ones leave no gaps.
  int64_t slot(int64_t position) const {
    if (height == 1 || position >= size()) return position;
    const int64_t row = position / width, column = position % width;
    const int64_t first_row = row / kPatch * kPatch, first_column = column / kPatch * kPatch;
    const int64_t rows = std::min(kPatch, height - first_row),
                  columns = std::min(kPatch, width - first_column);
    const int64_t y = row % kPatch, x = column % kPatch,
                  start = first_row * width + first_column * rows;
    if (rows < kPatch || columns < kPatch) return start + y * columns + x;
    const int64_t quarter = y / kSmallPatch * 2 + x / kSmallPatch;
    return start + (quarter * kSmallPatch + y % kSmallPatch) * kSmallPatch + x % kSmallPatch;
  }
};

// One axis: the taps of an output, and the outputs that have a position among their taps.
struct Axis {
  int64_t size = 1, outputs = 1, filter = 1, step = 1, pad = 0;

  bool holds(int64_t output, int64_t position) const {
    const int64_t tap = position - output * step + pad;
    return tap >= 0 && tap < filter;
  }

  // [begin, end)
  KeyRun taps(int64_t output) const {
    const int64_t first = output * step - pad;
    return {std::max<int64_t>(0, first), std::min(first + filter, size)};
  }

  KeyRun outputs_of(int64_t position) const {
    const int64_t least = position + pad - filter + 1;  // <= output * step
    return {least <= 0 ? 0 : (least + step - 1) / step,
            std::min((position + pad) / step + 1, outputs)};
  }
};

class Convolution : public AttentionPattern {
 public:
  Convolution(Axis rows, Axis columns, const PatternSpec& spec)
      : rows_(rows),
        columns_(columns),
        inputs_{rows.size, columns.size},
        outputs_{rows.outputs, columns.outputs},
        causal_(spec.causal),
        transposed_(spec.transposed) {
    name_ = str("convolution(grid ", list_text(spec.grid), ", filter ", list_text(spec.filter),
                ", step ", spec.step, transposed_ ? ", transposed" : "",
                causal_ ? "" : ", bidirectional", ")");
  }

  std::string name() const override { return name_; }

  // With a step, queries and keys are numbered differently: "later" has no meaning.
  bool causal() const override { return causal_ && columns_.step == 1; }

  Lengths lengths() const override { return {queries().size(), keys().size()}; }

  bool attends(int, int64_t i, int64_t j) const override {
    if (i >= queries().size() || j >= keys().size()) return false;
    const int64_t output = transposed_ ? j : i, input = transposed_ ? i : j;
    const int64_t p = output / outputs_.width, q = output % outputs_.width;
    if (!rows_.holds(p, input / inputs_.width) || !columns_.holds(q, input % inputs_.width))
      return false;
    return !causal_ || (transposed_ ? input >= stands_on(p, q) : input <= stands_on(p, q));
  }

  void key_runs(int, int64_t i, std::vector<KeyRun>& runs) const override {
    if (i >= queries().size()) return;
    const int64_t row = i / queries().width, column = i % queries().width, width = keys().width;
    const KeyRun rows = transposed_ ? rows_.outputs_of(row) : rows_.taps(row);
    const KeyRun columns = transposed_ ? columns_.outputs_of(column) : columns_.taps(column);
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      KeyRun run{y * width + columns.begin, y * width + columns.end};
      if (causal_ && !transposed_) run.end = std::min(run.end, stands_on(row, column) + 1);
      if (causal_ && transposed_) {
        // The outputs (y, x) with stands_on(y, 0) + x * step <= i.
        const int64_t room = i - stands_on(y, 0);
        run.end = room < 0 ? run.begin : std::min(run.end, y * width + room / columns_.step + 1);
      }
      if (run.size() > 0) runs.push_back(run);
    }
  }

  int64_t query_slot(int, int64_t i, int64_t) const override { return queries().slot(i); }

  int64_t key_slot(int, int64_t j, int64_t) const override { return keys().slot(j); }

 private:
  const Grid& queries() const { return transposed_ ? inputs_ : outputs_; }

  const Grid& keys() const { return transposed_ ? outputs_ : inputs_; }

  // The input position at the corner of an output's cell.
  int64_t stands_on(int64_t p, int64_t q) const {
    return p * rows_.step * inputs_.width + q * columns_.step;
  }

  Axis rows_, columns_;
  Grid inputs_, outputs_;
  bool causal_, transposed_;
  std::string name_;
};

// What the reference's rule asks of one axis; a single row is taken as it is.
Axis make_axis(int64_t size, int64_t filter, int64_t step, const char* what) {
  if (size % step != 0)
    refuse_pattern("convolution", "step must divide the ", what, " of grid, got step ", step,
                   " and ", what, " ", size,
                   size > step ? str("; ", size - size % step, " works") : "");
  if (step == 1 && filter % 2 == 0)
    refuse_pattern("convolution", "a filter of even size needs a step of at least 2, got ", what,
                   " ", filter, "; ", filter - 1, " or ", filter + 1, " works");
  return {size, std::max<int64_t>(1, size / step), filter, step,
          filter > step ? (filter - step + 1) / 2 : 0};
}

std::unique_ptr<AttentionPattern> make_convolution(const PatternSpec& spec, int) {
  for (const auto& [field, sizes] : {std::pair{"grid", &spec.grid}, {"filter", &spec.filter}}) {
    if (sizes->empty())
      refuse_pattern("convolution", field, " is required, [width] or [height, width]");
    if (sizes->size() > 2)
      refuse_pattern("convolution", field, " must be [width] or [height, width], got ",
                     sizes->size(), " numbers");
    for (const int64_t size : *sizes) check_pattern_field("convolution", field, size);
  }
  if (spec.grid.size() != spec.filter.size())
    refuse_pattern("convolution", "grid and filter must have equally many numbers, got ",
                   list_text(spec.grid), " and ", list_text(spec.filter));
  check_pattern_field("convolution", "step", spec.step);
  const bool flat = spec.grid.size() == 1 || spec.grid[0] == 1;
  const int64_t height = flat ? 1 : spec.grid[0], width = spec.grid.back();
  if (height > kMaxPositions / width)
    refuse_pattern("convolution", "grid must have at most ", kMaxPositions, " positions, got ",
                   list_text(spec.grid));
  Axis rows;
  if (!flat) rows = make_axis(height, spec.filter[0], spec.step, "height");
  return std::make_unique<Convolution>(
      rows, make_axis(width, spec.filter.back(), spec.step, "width"), spec);
}
}  // namespace

PatternKind convolution_pattern() {
  return {"convolution",
          "the window of a convolution with `filter` and `step` over `grid`; causal: up to the "
          "position below it",
          reads({"grid", "filter", "step", "causal", "transposed"}),
          make_convolution,
          {"grid", "filter"}};
}
}  // namespace weft
