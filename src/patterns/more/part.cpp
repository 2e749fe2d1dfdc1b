// SPDX-License-Identifier: MIT
// The part more_patterns: kinds beyond those of the paper.
#include "src/patterns/spec.h"

namespace weft {
// Each is in the file of this folder that has its name.
PatternKind longformer_pattern();
PatternKind bigbird_pattern();
PatternKind convolution_pattern();
PatternKind layout_kind();

void register_more_patterns() {
  for (const auto kind : {longformer_pattern, bigbird_pattern, convolution_pattern, layout_kind})
    add_pattern(kind());
}
}  // namespace weft
