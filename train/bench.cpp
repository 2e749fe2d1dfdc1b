// SPDX-License-Identifier: MIT
// bench: checks and times kernels. Rows of text, or JSON objects with --json.
#include <iostream>

#include "train/bench_kernels.h"
#include "train/program.h"

int main(int argc, char** argv) {
  CLI::App app{"Times what training is made of", "bench"};
  app.require_subcommand(1);
  weft::BenchKernelsOptions options;
  CLI::App* kernels = app.add_subcommand("kernels", "every kernel at the sizes of a training step");
  kernels->add_option("--filter", options.filter, "only rows whose kernel (sizes) contains this");
  kernels->add_option("--device", options.device, "cpu, cuda, cuda:N or auto");
  kernels->add_option("--dtype", options.dtype, "f32, f16 or bf16 (default bf16)");
  kernels->add_flag("--json", options.json, "one JSON object a row");
  kernels->add_flag("--verify,!--no-verify", options.verify, "compare with the CPU form first (default)");
  return weft::run_program(app, argc, argv, [&] { weft::bench_kernels(options, std::cout, std::cerr); });
}
