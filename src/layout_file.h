// SPDX-License-Identifier: MIT
// Block layouts from files: 0 and 1 as an array (query blocks, key blocks) that all heads share, or (heads,
// query blocks, key blocks), in a .npy file or in a dataset of an HDF5 file.
#pragma once

#include <string>
#include <string_view>

#include "src/layout.h"

namespace weft {

// Fills heads, query_blocks, key_blocks, active and source. `dataset`: of an HDF5 file; "" for .npy. Throws
// Error that names the file and the first value that is neither 0 nor 1.
BlockLayout read_block_layout(const std::string& path, const std::string& dataset);
// The same from the bytes of a .npy file.
BlockLayout parse_block_layout(std::string_view npy, const std::string& source);

}  // namespace weft
