// SPDX-License-Identifier: MIT
// What all data files begin with (data/README.md).
#pragma once

#include "src/files/hdf5.h"

#include <string>
#include <vector>

namespace weft {
// A file with the attributes that all have.
Hdf5File create_data_file(const std::string& path, int64_t vocab, const std::string& description,
                          const std::vector<std::string>& sources,
                          Hdf5File::Size = Hdf5File::Size::fits_memory);
}  // namespace weft
