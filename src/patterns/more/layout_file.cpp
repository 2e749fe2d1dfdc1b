// SPDX-License-Identifier: MIT
// Layouts in .npy files. Nothing is allocated that the size of the file does not bear out.
#include "src/patterns/more/layout.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "src/config/names.h"
#include "src/files/npy.h"

namespace weft {

std::int64_t layout_size(const std::vector<std::int64_t>& shape, const std::string& source) {
  const std::string text = joined(shape);
  if (shape.size() != 2 && shape.size() != 3)
    fail(str(source, ": a layout is (query blocks, key blocks) or (heads, query blocks, key blocks), got ",
             "shape (", text, ")"));
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t size = 1;
  for (const std::int64_t n : shape) {
    if (n < 1 || n > kMost / size)
      fail(str(source, ": a layout cannot have the shape (", text, "): it is ",
               n < 1 ? "empty" : "too large"));
    size *= n;
  }
  return size;
}

BlockLayout layout_of(const std::vector<std::int64_t>& shape, const std::string& source,
                      const std::function<std::int64_t(std::int64_t)>& value_at) {
  BlockLayout layout;
  layout.source = source;
  layout.active.resize(layout_size(shape, source));
  layout.heads = shape.size() == 3 ? shape[0] : 1;
  layout.query_blocks = shape[shape.size() - 2];
  layout.key_blocks = shape[shape.size() - 1];
  for (std::size_t at = 0; at < layout.active.size(); ++at) {
    const auto index = static_cast<std::int64_t>(at), value = value_at(index);
    if (value != 0 && value != 1)
      fail(str(source, ": a layout holds only 0 and 1, got ", value, " for head ",
               index / (layout.query_blocks * layout.key_blocks), ", query block ",
               index / layout.key_blocks % layout.query_blocks, ", key block ", index % layout.key_blocks));
    layout.active[at] = static_cast<std::uint8_t>(value);
  }
  return layout;
}

BlockLayout parse_block_layout(std::string_view npy, const std::string& source) {
  const NpyArray array = parse_npy(npy, source);
  return layout_of(array.shape, source, [&](std::int64_t at) { return array.value(at); });
}

BlockLayout read_block_layout(const std::string& path, const std::string& dataset) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail(str(path, ": cannot be opened: ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) fail(str(path, ": is not a regular file, expected a .npy or HDF5 file"));
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::min<std::size_t>(static_cast<std::size_t>(info.st_size), 8), '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    fail(str(path, ": cannot be read: ", std::strerror(errno)));
  if (!is_npy(bytes)) return read_hdf5_layout(path, dataset);
  if (!dataset.empty())
    fail(str(path, ": is a .npy file, which holds one array; leave out dataset, got ", dataset));
  bytes.resize(info.st_size);
  in.seekg(0);
  in.read(bytes.data(), info.st_size);
  bytes.resize(in.gcount());
  return parse_block_layout(bytes, path);
}

}  // namespace weft
