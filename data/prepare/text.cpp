// SPDX-License-Identifier: MIT
// prepare text: files of any kind as one stream of bytes.
#include "data/dataset.h"
#include "data/formats/raw_file.h"
#include "data/prepare/prepare.h"
#include "kernels/view.h"

namespace weft {

std::string prepare_text(const PrepareText& o) {
  if (o.files.empty()) fail("prepare text: name at least one file");
  std::vector<char> bytes;
  std::vector<std::string> sources;
  std::string lines;
  for (const std::string& file : o.files) {
    check_not_written(file, o.out);
    const auto piece = read_raw_file(file);
    lines += str("read ", file, ": ", piece.size(), " bytes\n");
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    sources.push_back(file_name(file));
  }
  return lines + write_token_file(o.out, byte_tokens(bytes), 256, o.split, "bytes of text", sources);
}

}  // namespace weft
