// SPDX-License-Identifier: MIT
// Where the time of a training step goes: launches grouped by kernel and shape, each with its roofline time.
#pragma once

#include "data/batch_source.h"
#include "kernels/launch_profile.h"
#include "models/model.h"
#include "src/config/config.h"
#include "src/ranks/communicator.h"

namespace weft {

struct KernelGroup {
  std::string kernel, shape;
  std::int64_t launches = 0;  // in one step
  double milliseconds = 0, bytes = 0, flops = 0;
  double roofline_ms = 0;  // the longer of: its bytes at the copy bandwidth, its operations at the GEMM rate
};

struct StepBreakdown {
  double copy_bandwidth = 0, peak_flops = 0;  // copy bandwidth in bytes/s, GEMM in FLOP/s, measured here
  std::vector<KernelGroup> groups;            // longest first
};

// Groups of the launches of one step.
std::vector<KernelGroup> group_launches(const std::vector<LaunchRecord>&);

// Runs a few steps without a CUDA graph, times each launch and takes the median of each. Operations of
// attention count the needed pairs. `communicator` as for TrainStep.
StepBreakdown measure_breakdown(Device&, Model&, ParameterStore&, const Config&, const BatchSource&,
                                Communicator* communicator = nullptr);

// `step_ms`: of the step as trained. The gap is what kernels do not account for: launches, copies, clears.
void print_breakdown(const StepBreakdown&, double step_ms, std::ostream&);
std::string breakdown_json(const StepBreakdown&, double step_ms);  // members of an object, without braces

}  // namespace weft
