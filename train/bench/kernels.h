// SPDX-License-Identifier: MIT
// `bench kernels`: verifies each kernel at awkward sizes, then times its realistic ones.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "src/device.h"

namespace weft {

struct BenchKernelsOptions {
  std::string filter;  // in "kernel (sizes)"; empty: all
  std::string device = "auto";
  std::string dtype = "bf16";  // f32, f16 or bf16
  bool json = false;           // one object a row
  bool verify = true;
};

// f32, f16 or bf16; throws Error for other names.
DType bench_dtype(const std::string& name);
// Clears the caches: to be run before each timed run.
std::function<void()> l2_flush(Device&);

// Prints rows to `out`; `notes` names what is left out and why. Throws Error when a kernel is wrong.
void bench_kernels(const BenchKernelsOptions&, std::ostream& out, std::ostream& notes);

}  // namespace weft
