// SPDX-License-Identifier: MIT
// libFuzzer: any text as a config and as a pattern. Only Error may come out; what is taken is
// written and read again to the same text.
#include "kernels/view.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"

#include <cstddef>
#include <cstdlib>
#include <string>

namespace {
template <class Read>
void check(Read&& read, const std::string& text) {
  std::string written;
  try {
    written = weft::to_yaml(read(text));
  } catch (const weft::Error&) {
    return;
  }
  if (weft::to_yaml(read(written)) != written) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // layouts have a fuzzer of their own; no files here
  if (text.find("file") != std::string::npos) return 0;
  check([](const std::string& yaml) { return weft::parse_config(yaml, "fuzz"); }, text);
  check([](const std::string& yaml) { return weft::parse_pattern(yaml, "fuzz"); }, text);
  return 0;
}
