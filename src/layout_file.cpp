// SPDX-License-Identifier: MIT
// The kind of a file is told by its first bytes. Nothing is allocated that the size of the file does not
// bear out.
#include "src/layout_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "kernels/view.h"
#include "src/hdf5.h"
#include "src/npy.h"

namespace weft {
namespace {

constexpr std::int64_t kMostPacked = 1032;  // the best ratio that deflate, HDF5's usual packing, can reach

// Puts the shape into the layout and returns the number of values.
std::int64_t set_shape(BlockLayout& layout, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  if (shape.size() != 2 && shape.size() != 3)
    fail(str(layout.source, ": a layout is (query blocks, key blocks) or (heads, query blocks, key blocks), ",
             "got shape (", text, ")"));
  std::int64_t size = 1;
  for (const std::int64_t n : shape) {
    if (n < 1 || n > (std::int64_t{1} << 40) / size)
      fail(str(layout.source, ": shape (", text, ") is empty or too large for a layout"));
    size *= n;
  }
  layout.heads = shape.size() == 3 ? shape[0] : 1;
  layout.query_blocks = shape[shape.size() - 2];
  layout.key_blocks = shape[shape.size() - 1];
  return size;
}

template <class ValueAt>
void fill(BlockLayout& layout, std::int64_t size, ValueAt&& value_at) {
  layout.active.resize(static_cast<std::size_t>(size));
  for (std::int64_t at = 0; at < size; ++at) {
    const std::int64_t value = value_at(at);
    if (value != 0 && value != 1)
      fail(str(layout.source, ": a layout holds only 0 and 1, got ", value, " for head ",
               at / (layout.query_blocks * layout.key_blocks), ", query block ",
               at / layout.key_blocks % layout.query_blocks, ", key block ", at % layout.key_blocks));
    layout.active[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(value);
  }
}

BlockLayout read_hdf5(const std::string& path, const std::string& dataset, std::int64_t file_size) {
  const Hdf5File file = Hdf5File::open(path);
  if (dataset.empty()) {
    std::string names;
    for (const std::string& name : file.list("/")) names += (names.empty() ? "" : ", ") + name;
    fail(str(path, ": is an HDF5 file; `dataset` must name the layout in it: ",
             names.empty() ? "it has none" : names));
  }
  BlockLayout layout;
  layout.source = path + ", " + dataset;
  const std::vector<std::int64_t> shape = file.shape_of(dataset);
  const std::int64_t size = set_shape(layout, shape);
  if (size / kMostPacked > file_size)
    fail(str(layout.source, ": ", size, " values cannot be in a file of ", file_size,
             " bytes; write all of them"));
  std::vector<std::int32_t> values(static_cast<std::size_t>(size));  // i32: -1 and 256 stay what they are
  file.read(dataset, StoredType::i32, shape, values.data());
  fill(layout, size, [&](std::int64_t at) { return values[static_cast<std::size_t>(at)]; });
  return layout;
}

}  // namespace

BlockLayout parse_block_layout(std::string_view npy, const std::string& source) {
  BlockLayout layout;
  layout.source = source;
  const NpyArray array = parse_npy(npy, source);
  const std::int64_t size = set_shape(layout, array.shape);
  fill(layout, size, [&](std::int64_t at) { return array.value(at); });
  return layout;
}

BlockLayout read_block_layout(const std::string& path, const std::string& dataset) {
  if (path.empty()) fail("attention pattern 'layout': file must name a .npy or HDF5 file");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail(str(path, ": cannot be opened: ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) fail(str(path, ": is not a regular file, expected a .npy or HDF5 file"));
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::min<std::size_t>(static_cast<std::size_t>(info.st_size), 8), '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) fail(str(path, ": cannot be read"));
  if (!is_npy(bytes)) return read_hdf5(path, dataset, info.st_size);
  if (!dataset.empty())
    fail(str(path, ": is a .npy file, which holds one array; leave out `dataset` (got ", dataset, ")"));
  bytes.resize(static_cast<std::size_t>(info.st_size));
  in.seekg(0);
  in.read(bytes.data(), info.st_size);
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return parse_block_layout(bytes, path);
}

}  // namespace weft
