// SPDX-License-Identifier: MIT
// Times of runs on a device, with the GPU's clock meanwhile: time x clock does not depend on the
// power limit.
#pragma once

#include "src/device.h"
#include "train/program/progress.h"

#include <cstddef>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace weft {
// Of each run.
struct TimedRuns {
  std::vector<double> milliseconds;
  std::vector<double> clocks;  // MHz, of all multiprocessors; 0 on the CPU

  double median_ms() const;
  double mean_clock() const;  // MHz
};

double median(std::vector<double> values);   // the upper one of an even number
DType bench_dtype(const std::string& name);  // f32, f16 or bf16; throws Error for other names
std::function<void()> l2_flush(Device&);     // clears the caches: to be run before each timed run

class RunTimer {
 public:
  // The device rests for `pause_ms` before each run, so that its clock is not at the power limit.
  explicit RunTimer(Device&, int pause_ms = 0);
  // `repeats` runs (at least one) that start with cold caches.
  TimedRuns time(int repeats, const std::function<void()>& work);
  // As many runs as take about `ms`, 3 to 50, after a few that are not counted.
  TimedRuns time_for(double ms, const std::function<void()>& work);

 private:
  Device& device_;
  int pause_ms_;
  int64_t multiprocessors_;
  std::function<void()> flush_;
};

// ---- tables whose rows are printed as they come, in columns of fixed widths ----

struct Column {
  std::string title;
  int width = 0;    // 0: the last column, a text of any length
  int digits = -1;  // of a number, flush right; -1: a text, flush left
};

using Columns = std::vector<Column>;
using Cell = std::variant<std::string, double>;

inline void print_row(std::ostream& out, const Columns& columns, const std::vector<Cell>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Column& column = columns[i];
    const auto* text = std::get_if<std::string>(&cells[i]);
    const std::string cell = text ? *text : fixed_text(std::get<double>(cells[i]), column.digits);
    const auto width = static_cast<std::size_t>(column.width);
    const std::string padding(width > cell.size() ? width - cell.size() : 0, ' ');
    line += column.width == 0 ? "  " + cell : column.digits < 0 ? cell + padding : padding + cell;
  }
  out << line << std::endl;
}

inline void print_head(std::ostream& out, const Columns& columns) {
  std::vector<Cell> titles;
  for (const Column& column : columns) titles.emplace_back(column.title);
  print_row(out, columns, titles);
}
}  // namespace weft
