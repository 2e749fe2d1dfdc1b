// SPDX-License-Identifier: MIT
// Layouts in HDF5 files.
#include "src/config/names.h"
#include "src/files/hdf5.h"
#include "src/patterns/more/layout.h"

#include <filesystem>
#include <string>
#include <vector>

namespace weft {
BlockLayout read_hdf5_layout(const std::string& path, const std::string& dataset) {
  // the best ratio that deflate, HDF5's usual packing, can reach
  constexpr int64_t kMostPacked = 1032;
  const Hdf5File file = Hdf5File::open(path);
  if (dataset.empty())
    fail(path,
         ": is an HDF5 file; dataset must name the layout in it, one of: ", joined(file.list("/")));
  const std::string source = path + ", " + dataset;
  const std::vector<int64_t> shape = file.shape_of(dataset);
  const int64_t size = layout_size(shape, source);
  const auto file_size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (size / kMostPacked > file_size)
    fail(source, ": ", size, " numbers cannot be in a file of ", file_size,
         " bytes; some were never written");
  std::vector<int32_t> values(size);  // i32: -1 and 256 stay what they are
  file.read(dataset, StoredType::i32, shape, values.data());
  return layout_of(shape, source, [&](int64_t at) { return values[at]; });
}
}  // namespace weft
