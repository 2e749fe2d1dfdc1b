// SPDX-License-Identifier: MIT
// The debug level, read once from the environment.
#include "kernels/queue.h"

#include <cstdlib>

namespace weft {

int debug_level() {
  static const int level = [] {
    const char* text = std::getenv("WEFT_DEBUG");
    if (!text || !*text) return 0;
    WEFT_CHECK(text[0] >= '0' && text[0] <= '3' && text[1] == 0, "WEFT_DEBUG must be 0, 1, 2 or 3, got '",
               text, "'");
    return text[0] - '0';
  }();
  return level;
}

}  // namespace weft
