// SPDX-License-Identifier: MIT
// `bench attention`: attention alone, forward and backward, at the shapes of the paper's models or at others.
// Each row is checked against f64 before it is timed; every timed run starts with cold caches.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "src/patterns/spec.h"

namespace weft {

// One shape of attention, with the numbers that its patterns take.
struct AttentionBenchShape {
  std::string name;
  std::int64_t batch = 1, heads = 1, length = 1, qk_size = 64, v_size = 64;  // B, H, n, Dqk, Dv
  std::int64_t stride = 128, c = 32;
  std::vector<std::string> modes = {"all", "local", "strided", "fixed", "merged_strided"};
};

struct BenchAttentionOptions {
  std::string shapes = "paper";  // "paper": all of them; or names, separated by commas
  std::string modes;             // separated by commas; empty: those of the shape
  std::string custom;            // "B,H,n,Dqk,Dv,stride,c": another shape, instead of `shapes`
  std::string device = "auto";
  std::string dtype = "bf16";        // f32, f16 or bf16, or several of them, separated by commas
  std::string form = "automatic";    // which CUDA kernels: see AttentionForm
  int pause_ms = 0;                  // the device is idle for so long before each timed run
  bool f16_against_bf16 = false;     // rows of both types in turn: bench_f16_against_bf16()
  bool json = false, verify = true;  // one object a row; check first
};

// Prints a row a pattern: median times of the forward pass and of forward and backward together; FLOP/s of
// the needed pairs; bandwidth, each tensor read or written once; speedup over `all` of the same shape and
// type, if that was measured before; the kernels that ran. JSON rows add the mean clock. The GEMM rate and
// the copy bandwidth of this device, measured in the same process, come first. Throws Error when a result is
// wrong.
void bench_attention(const BenchAttentionOptions&, std::ostream& out);

}  // namespace weft
