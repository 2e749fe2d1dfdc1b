// SPDX-License-Identifier: MIT
#include "train/inspect/pattern_view.h"

#include "src/patterns/pattern.h"
#include "train/program/counts.h"

#include <string>

namespace weft {
std::string title_of(const PatternView& view) {
  std::string title = str("head ", view.head, ": ", view.pattern.name(), ", ",
                          grouped_digits(view.n.queries), " positions");
  if (view.n.keys != view.n.queries) title += str(", ", grouped_digits(view.n.keys), " keys");
  return title;
}
}  // namespace weft
