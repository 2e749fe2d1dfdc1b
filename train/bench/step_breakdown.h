// SPDX-License-Identifier: MIT
// What `bench step` measures: where a step's time goes, by kernel and shape, and their roofline
// times.
#pragma once

#include "data/batch_source.h"
#include "kernels/diagnostics/launch_profile.h"
#include "kernels/diagnostics/timer.h"
#include "models/model.h"
#include "train/trainer/data_parallel.h"

#include <string>
#include <vector>

namespace weft {
struct KernelGroup {
  std::string kernel = {}, shape = {};
  int64_t launches = 0;  // in one step
  double milliseconds = 0, bytes = 0, flops = 0;
  // the longer of: its bytes at the copy bandwidth, its operations at the GEMM rate
  double roofline_ms = 0;

  void operator+=(const KernelGroup& g) {
    launches += g.launches, milliseconds += g.milliseconds, bytes += g.bytes, flops += g.flops;
    roofline_ms += g.roofline_ms;
  }
};

struct StepBreakdown {
  // copy bandwidth in bytes/s, GEMM in FLOP/s, measured here
  double copy_bandwidth = 0, peak_flops = 0;
  std::vector<KernelGroup> groups;  // longest first
};

// Groups of the launches of one step.
std::vector<KernelGroup> group_launches(const std::vector<LaunchRecord>&);

// Runs a few steps without a CUDA graph, times each launch and takes the median of each. Operations
// of attention count the needed pairs. `shared` as for TrainStep.
StepBreakdown measure_breakdown(Device&, Model&, ParameterStore&, const Config&, const BatchSource&,
                                SharedStep* shared = nullptr);

// `step_ms`: of the step as trained. The gap is what kernels do not account for: launches, copies,
// clears.
void print_breakdown(const StepBreakdown&, double step_ms, std::ostream&);
// members of an object, without braces
std::string breakdown_json(const StepBreakdown&, double step_ms);
}  // namespace weft
