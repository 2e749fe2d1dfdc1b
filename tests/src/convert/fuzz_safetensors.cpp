// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as a file of weights. Only Error may come out, or arrays of the promised
// sizes.
#include "kernels/view.h"
#include "src/convert/safetensors.h"
#include "tests/fuzz/memory_file.h"

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

// In the place of weights.cpp, which needs the engine.
std::vector<float> weft::WeightsFile::values(const std::string& name) const { return read(name); }

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const weft::WeightsFile file = weft::safetensors_weights(weft::memory_file(data, size));
    for (const auto& [name, shape] : file.shapes) {
      int64_t count = 1;
      for (const int64_t axis : shape) count *= axis;
      if (static_cast<int64_t>(file.values(name).size()) != count) std::abort();
    }
  } catch (const weft::Error&) {}
  return 0;
}
