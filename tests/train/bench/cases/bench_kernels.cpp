// SPDX-License-Identifier: MIT
// `bench kernels`: rows of kernel, sizes, median time, bandwidth and FLOP/s.
#include "tests/train/bench/cases/bench_kernels.h"

#include "src/config/names.h"
#include "tests/cases/kernel_cases.h"
#include "train/bench/bench.h"
#include "train/bench/run_timer.h"
#include "train/program/json.h"
#include "train/program/options.h"

#include <iostream>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr double kLongestOnCpu = 1e12;  // FLOP of a case: a minute or so

std::string title(const KernelCase& c) { return str(c.kernel, " (", c.sizes, ")"); }

const Columns kColumns = {
    {"kernel", 24}, {"sizes", 52}, {"ms", 12, 4}, {"TB/s", 9, 3}, {"TFLOP/s", 10, 2}};

void time_case(Device& device, const KernelCase& c, CaseRun& run,
               const BenchKernelsOptions& options, std::ostream& out) {
  const double ms =
      RunTimer(device).time_for(device.is_cuda() ? 400 : 1000, [&] { run.launch(); }).median_ms();
  const double tbps = run.bytes() / ms * 1e-9, tflops = run.flops() / ms * 1e-9;
  if (!options.json) return print_row(out, kColumns, {c.kernel, c.sizes, ms, tbps, tflops});
  const JsonMembers members = {
      {"kernel", c.kernel}, {"sizes", c.sizes}, {"dtype", options.dtype}, {"device", device.name},
      {"ms", ms},           {"tb_per_s", tbps}, {"tflop_per_s", tflops}};
  out << json_object(members) << std::endl;
}

void add_command(Commands commands) {
  static BenchKernelsOptions o;
  CLI::App* command = commands.add("kernels", "every kernel at the sizes of a training step",
                                   [] { bench_kernels(o, std::cout, std::cerr); });
  command->add_option("--filter", o.filter, "only rows whose kernel (sizes) contains this");
  add_device(*command, o.device);
  command->add_option("--dtype", o.dtype, "f32, f16 or bf16 (default bf16)");
  command->add_flag("--json", o.json, "one JSON object a row");
  command->add_flag("--verify,!--no-verify", o.verify, "compare with the CPU form first (default)");
}

const bool added = (linked_commands().push_back(add_command), true);
}  // namespace

void bench_kernels(const BenchKernelsOptions& options, std::ostream& out, std::ostream& notes) {
  const DType type = bench_dtype(options.dtype);
  const auto device = make_device(options.device);
  std::vector<const KernelCase*> chosen;
  std::set<std::string> kernels;
  for (const KernelCase& c : kernel_cases()) {
    kernels.insert(c.kernel);
    if (c.realistic && title(c).find(options.filter) != std::string::npos) chosen.push_back(&c);
  }
  if (chosen.empty()) {
    fail("--filter '", options.filter, "' matches no kernel and sizes; kernels: ", joined(kernels));
  }
  if (!options.json) {
    out << device->description() << ", " << options.dtype << "\n";
    print_head(out, kColumns);
  }
  std::set<std::string> verified;
  for (const KernelCase* c : chosen) {
    if (options.verify && verified.insert(c->kernel).second)
      for (const KernelCase& small : kernel_cases())
        if (small.kernel == std::string(c->kernel) && !small.realistic)
          verify(*device, small, {type, type, false, false});
    CaseRun run(*device, *c, {type, type, false, false});
    if (!device->is_cuda() && run.flops() > kLongestOnCpu) {
      notes << "left out on the CPU, " << run.flops() * 1e-12 << " TFLOP: " << title(*c)
            << std::endl;
      continue;
    }
    time_case(*device, *c, run, options, out);
  }
}
}  // namespace weft
