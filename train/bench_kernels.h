// SPDX-License-Identifier: MIT
// `bench kernels`: verifies each kernel at awkward sizes, then times its realistic ones.
#pragma once

#include <iosfwd>
#include <string>

namespace weft {

struct BenchKernelsOptions {
  std::string filter;  // in "kernel (sizes)"; empty: all
  std::string device = "auto";
  std::string dtype = "bf16";  // f32, f16 or bf16
  bool json = false;           // one object a row
  bool verify = true;
};

// Rows to `out`, what is left out and why to `notes`. Throws Error when a kernel is wrong.
void bench_kernels(const BenchKernelsOptions&, std::ostream& out, std::ostream& notes);

}  // namespace weft
