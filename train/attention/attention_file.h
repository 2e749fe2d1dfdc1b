// SPDX-License-Identifier: MIT
// The program `attention`: attention over a pattern, from arrays in one HDF5 file to arrays in
// another.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

namespace weft {
// The arrays of `in` and `out`: train/attention.cpp. Results are f32, or f64 when computed in f64.
struct AttentionFileOptions {
  std::string in, out;
  std::string pattern;  // as in a config: "{kind: fixed, stride: 128, c: 32}"
  std::string device = "auto", form = "automatic", dtype = "f32";
  std::optional<double> scale;  // 1 / sqrt(Dqk)
};

// Prints pairs, planned bytes, the kernels that run, and milliseconds. After an Error `out` is as
// it was.
void run_attention_file(const AttentionFileOptions&, std::ostream& report);
}  // namespace weft
