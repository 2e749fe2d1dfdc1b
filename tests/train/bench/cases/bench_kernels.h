// SPDX-License-Identifier: MIT
// The command `bench kernels`. It lies here because it runs the cases of tests/cases.
#pragma once

#include <iosfwd>
#include <string>

namespace weft {
// `bench kernels`: verifies each kernel at awkward sizes, then times its realistic ones.
struct BenchKernelsOptions {
  std::string filter;  // in "kernel (sizes)"; empty: all
  std::string device = "auto";
  std::string dtype = "bf16";  // f32, f16 or bf16
  bool json = false;           // one object a row
  bool verify = true;
};

// `notes` names what is left out and why.
void bench_kernels(const BenchKernelsOptions&, std::ostream& out, std::ostream& notes);
}  // namespace weft
