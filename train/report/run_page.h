// SPDX-License-Identifier: MIT
// report.html: what a run folder holds, as one page for people, without scripts and without a
// network.
#pragma once

#include "train/trainer/trainer.h"

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace weft {
// Curves, pictures of the patterns, config, machine and samples of one run; of several runs their
// curves together, then each. Reads config.yaml, metrics.jsonl, about.txt and samples/ of each
// folder; a file that is missing is left out, but metrics.jsonl. Throws Error for a folder that is
// none of a run.
std::string run_page(const std::vector<std::string>& folders);

// Run by Trainer after each evaluation: keeps about.txt, draws a sample of the model (text, or
// images) into samples/, and writes report.html anew. Drawing is given up for good when it takes
// longer than ten seconds.
std::function<void(const Evaluated&)> keep_report();

// ---- line charts as SVG text; colours are CSS variables --c0, --c1 ... of the page ----

struct Series {
  std::string name;
  std::size_t colour = 0;
  bool marks = false;                             // a dot at each point
  std::vector<std::pair<double, double>> points;  // x ascending
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
