// SPDX-License-Identifier: MIT
// Line charts as SVG text; colours are CSS variables --c0, --c1 ... of the page.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weft {
using Points = std::vector<std::pair<double, double>>;

struct Series {
  std::string name;
  std::size_t colour = 0;
  bool marks = false;  // a dot at each point
  Points points;       // x ascending
  bool faint = false;  // a thin line, behind those that count
};

struct Chart {
  std::string title, x_name;
  std::vector<Series> series;
  bool log_y = false;  // only of positive numbers
  // of all y, this share of the highest may lie outside: the first steps of a run
  double low_share = 0.0;
};

// Text between tags: & < > and quotes are escaped; what utf8_length() (json.h) refuses becomes
// U+FFFD.
std::string html_text(const std::string&);

// "" where no series has a finite point. Long series are thinned to means of neighbours.
std::string svg_of(const Chart&);
}  // namespace weft
