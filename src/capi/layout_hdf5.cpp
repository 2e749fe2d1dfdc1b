// SPDX-License-Identifier: MIT
// The C library stands without HDF5: it takes layouts from memory.
#include "src/layout_file.h"

#include "src/capi/errors.h"

namespace weft {

BlockLayout read_block_layout(const std::string& path, const std::string& /*dataset*/) {
  capi::unsupported("'", path, "': layouts are given to weft_pattern_create_layout()");
}

}  // namespace weft
