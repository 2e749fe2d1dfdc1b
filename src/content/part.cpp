// SPDX-License-Identifier: MIT
// The part content: patterns whose keys follow from what queries and keys hold.
#include "src/content/heads.h"
#include "src/content/patterns.h"

namespace weft {
void register_content() {
  for (const auto kind : {routing_pattern, lsh_pattern, topk_blocks_pattern}) add_pattern(kind());
  set_dynamic_heads(content_heads);
}
}  // namespace weft
