// SPDX-License-Identifier: MIT
// Tables whose rows are printed as they come, in columns of fixed widths.
#pragma once

#include <variant>

#include "train/program/progress.h"

namespace weft {

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
