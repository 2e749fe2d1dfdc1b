// SPDX-License-Identifier: MIT
// Block layouts from files: 0 and 1 as an array (query blocks, key blocks) that all heads share, or (heads,
// query blocks, key blocks), in a .npy file or in a dataset of an HDF5 file.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/patterns/more/layout.h"

namespace weft {

// Fills heads, query_blocks, key_blocks, active and source. `dataset`: of an HDF5 file; "" for .npy. Throws
// Error that names the file and the first value that is neither 0 nor 1. The file is known by its first
// bytes.
BlockLayout read_block_layout(const std::string& path, const std::string& dataset);
// The same from the bytes of a .npy file.
BlockLayout parse_block_layout(std::string_view npy, const std::string& source);
// The same from an HDF5 file. Programs without HDF5 (the C library) define it as a refusal.
BlockLayout read_hdf5_layout(const std::string& path, const std::string& dataset);

// For readers: how many numbers an array of this shape holds, if it can be a layout; and the layout of them.
std::int64_t layout_size(const std::vector<std::int64_t>& shape, const std::string& source);
BlockLayout layout_of(const std::vector<std::int64_t>& shape, const std::string& source,
                      const std::function<std::int64_t(std::int64_t index)>& value_at);

}  // namespace weft
