// SPDX-License-Identifier: MIT
// prepare tokens: the numbers of any tokenizer. The file is mapped: it need not fit into memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "data/dataset.h"
#include "data/formats/raw_file.h"
#include "data/prepare/prepare.h"
#include "kernels/view.h"

namespace weft {
std::string prepare_tokens(const PrepareTokens& o) {
  check_not_written(o.file, o.out);
  if (file_beginning(o.file).empty()) fail(o.file, ": is empty");
  const auto size = std::filesystem::file_size(o.file);
  const int opened = open(o.file.c_str(), O_RDONLY | O_CLOEXEC);
  const auto unmap = [=](void* bytes) { munmap(bytes, size); };
  const std::unique_ptr<void, decltype(unmap)> mapped(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened, 0),
                                                      unmap);
  if (mapped.get() == MAP_FAILED) fail(o.file, ": cannot be read: ", std::strerror(errno));
  close(opened);
  const std::string_view file(static_cast<const char*>(mapped.get()), size);
  NpyArray tokens{'u', o.dtype == "u32" || (o.dtype.empty() && o.vocab > 65536) ? 4 : 2, {}, file};
  if (is_npy(file)) {
    if (!o.dtype.empty()) fail("--dtype: ", o.file, " is a .npy file, which says its type; leave it out");
    tokens = parse_npy(file, o.file);
    if (tokens.shape.size() != 1)
      fail(o.file, ": has ", tokens.shape.size(), " axes, expected one; in numpy: a.reshape(-1)");
  } else if (size % tokens.item != 0) {
    fail(o.file, ": has ", size, " bytes, no whole number of tokens of ", tokens.item,
         " bytes; name their type with --dtype");
  }
  return write_token_file(o.out, tokens, o.vocab, o.split, "numbers of a tokenizer", {file_name(o.file)},
                          {{"bytes", o.bytes}});
}

}  // namespace weft
