// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as an archive, its members as .npy files. Only Error may come out, within
// the limits.
#include "data/formats/archive.h"
#include "kernels/view.h"
#include "src/files/npy.h"
#include "tests/fuzz/memory_file.h"

#include <cstddef>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const weft::ArchiveLimits limits{.member = 1 << 20, .total = 1 << 21, .count = 100};
  std::size_t total = 0;
  try {
    weft::for_each_member(
        weft::memory_file(data, size),
        [](const std::string& name) { return !name.ends_with(".txt"); },
        [&](const std::string& name, const std::string& bytes) {
          total += bytes.size();
          if (bytes.size() > 1 << 20 || total > 1 << 21) std::abort();
          weft::parse_npy(bytes, name);
        },
        limits);
  } catch (const weft::Error&) {}
  return 0;
}
