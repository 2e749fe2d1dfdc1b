// SPDX-License-Identifier: MIT
#include "src/parts/parts.h"

#include "kernels/view.h"

#include <algorithm>
#include <sstream>

namespace weft {
std::string absent_part_text(std::string_view asked) {
  for (const Part& part : parts()) {
    if (part.built) continue;
    std::istringstream holds{std::string(part.holds)};
    for (std::string name; holds >> name;)
      if (name == asked)
        return str("'", asked, "' is in the part '", part.name, "', which ",
                   part.option.empty()
                       ? "this library does not have"
                       : str("this build leaves out: configure with -D", part.option, "=ON"));
  }
  return "";
}
}  // namespace weft
