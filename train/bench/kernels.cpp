// SPDX-License-Identifier: MIT
// `bench kernels`: rows of kernel, sizes, median time, bandwidth and FLOP/s.
#include <algorithm>
#include <ostream>
#include <set>

#include "train/bench/bench.h"
#include "train/bench/run_timer.h"
#include "train/bench/table.h"
#include "train/kernel_cases/kernel_cases.h"
#include "train/program/json.h"

namespace weft {
namespace {

constexpr double kLongestOnCpu = 1e12;  // FLOP of a case: a minute or so

std::string title(const KernelCase& c) { return str(c.kernel, " (", c.sizes, ")"); }

struct Row {
  double milliseconds, bytes, flops;
};

Row time_case(Device& device, CaseRun& run) {
  const auto work = [&] { run.launch(); };
  const auto before = l2_flush(device);
  const auto timed = [&](int repeats) {
    return std::visit([&](auto& q) { return time_runs(q, repeats, before, work); }, device.queue);
  };
  const double first = timed(device.is_cuda() ? 3 : 1).back();  // warm
  const int repeats = std::clamp(static_cast<int>((device.is_cuda() ? 400 : 1000) / first), 3, 50);
  return {median(timed(repeats)), run.bytes(), run.flops()};
}

const Columns kColumns = {{"kernel", 24}, {"sizes", 52}, {"ms", 12, 4}, {"TB/s", 9, 3}, {"TFLOP/s", 10, 2}};

void print(const Row& row, const KernelCase& c, const Device& device, const BenchKernelsOptions& options,
           std::ostream& out) {
  const double tbps = row.bytes / row.milliseconds * 1e-9, tflops = row.flops / row.milliseconds * 1e-9;
  if (!options.json) return print_row(out, kColumns, {c.kernel, c.sizes, row.milliseconds, tbps, tflops});
  const JsonMembers members = {{"kernel", c.kernel},    {"sizes", c.sizes},       {"dtype", options.dtype},
                               {"device", device.name}, {"ms", row.milliseconds}, {"tb_per_s", tbps},
                               {"tflop_per_s", tflops}};
  out << json_object(members) << std::endl;
}

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
    std::string known;
    for (const std::string& kernel : kernels) known += (known.empty() ? "" : ", ") + kernel;
    fail(str("--filter '", options.filter, "' matches no kernel and sizes; kernels: ", known));
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
      notes << "left out on the CPU, " << run.flops() * 1e-12 << " TFLOP: " << title(*c) << std::endl;
      continue;
    }
    print(time_case(*device, run), *c, *device, options, out);
  }
}

}  // namespace weft
