// SPDX-License-Identifier: MIT
// Line charts as SVG text, which a page of HTML holds. Colours are CSS variables --c0, --c1 ... of the page.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft {

struct Series {
  std::string name;
  std::size_t colour = 0;
  bool marks = false;                             // a dot at each point
  std::vector<std::pair<double, double>> points;  // x ascending
};
struct Chart {
  std::string title, x_name;
  std::vector<Series> series;
  bool log_y = false;      // only of positive numbers
  double low_share = 0.0;  // of all y, this share of the highest may lie outside: the first steps of a run
};

// Text between tags: & < > and quotes are escaped; bytes that are no UTF-8, and control characters but line
// breaks and tabs, become U+FFFD.
std::string html_text(const std::string&);

// "" where no series has a finite point. Long series are thinned to means of neighbours.
std::string svg_of(const Chart&);

}  // namespace weft
