// SPDX-License-Identifier: MIT
// attention: q, k and v from an HDF5 file, attended over a pattern, to another. See
// train/README.md.
#include "train/attention/attention_file.h"
#include "train/program/options.h"
#include "train/program/program.h"

#include <iostream>

using namespace weft;

static void add_attention_options(CLI::App& app, AttentionFileOptions& a) {
  app.add_option("--in", a.in,
                 "HDF5 file with q, k, v; for gradients dout; query_segments, key_segments")
      ->required();
  app.add_option("--pattern", a.pattern, "as in a config: \"{kind: fixed, stride: 128, c: 32}\"")
      ->required();
  add_output(app, "--out", a.out, "HDF5 file to write: o, lse, and with dout dq, dk, dv")
      ->required();
  add_device(app, a.device);
  add_shown(app, "--form", a.form, "CUDA kernels: automatic, simple, general or hopper");
  add_shown(app, "--dtype", a.dtype, "f32, f16, bf16; f64 on a CPU");
  app.add_option("--scale", a.scale, "of the scores (default: 1 / sqrt(Dqk))");
  app.footer(
      "Shapes: q (B, T, H, Dqk), k (B, Tk, H, Dqk), v (B, Tk, H, Dv), dout and o (B, T, H, Dv), "
      "lse (B, H, "
      "T),\n"
      "query_segments (B, T) and key_segments (B, Tk): whole numbers; only equal ones that are not "
      "negative\n"
      "attend to each other. A query that sees nothing gives o 0, lse -inf and gradients 0.\n"
      "Examples:\n"
      "  attention --in qkv.h5 --pattern \"{kind: strided, stride: 128}\" --out o.h5\n"
      "  attention --in qkv.h5 --pattern \"{kind: local, stride: 64, causal: false}\" --out o.h5 "
      "--dtype "
      "bf16");
}

int main(int argc, char** argv) {
  AttentionFileOptions options;
  const auto add_options = [&](CLI::App& app) { add_attention_options(app, options); };
  const auto work = [&] { run_attention_file(options, std::cout); };
  return run_program(
      {"attention", "Sparse attention, forward and backward, on arrays in an HDF5 file.",
       add_options, work},
      argc, argv);
}
