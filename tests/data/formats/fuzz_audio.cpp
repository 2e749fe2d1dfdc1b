// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as a sound file. Out comes an Error or codes, within the limit.
#include "data/formats/audio_file.h"
#include "kernels/view.h"
#include "tests/fuzz/memory_file.h"

#include <cstddef>
#include <cstdlib>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  constexpr int64_t kMost = 1 << 14;
  std::vector<uint16_t> tokens;
  try {
    weft::append_audio(weft::memory_file(data, size), 12000, kMost, tokens);
  } catch (const weft::Error&) {}
  if (tokens.size() > kMost) std::abort();
  for (const uint16_t token : tokens)
    if (token > 255) std::abort();
  return 0;
}
