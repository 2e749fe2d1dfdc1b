// SPDX-License-Identifier: MIT
// What training says before the first step and at each log line.
#pragma once

#include "data/dataset.h"
#include "models/model.h"
#include "train/trainer/extension.h"
#include "train/trainer/run_folder.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft {
struct TrainOptions;

// What one micro-batch of full context needs on this device, to train or to evaluate.
MemoryPlan planned_memory(const Config&, const Device&, bool training);

// Planned bytes, with those of `hooks`, and free memory as text. Throws Error when they do not fit,
// with what to lower.
std::string check_memory(const Config&, const Device&, const std::vector<TrainHooks>& hooks = {});

// A few lines: device, model, patterns with their pairs and kernels, data, tokens a step.
std::vector<std::string> summary(const Config&, const Device&, DType, const ParameterStore&,
                                 const Model&, const TokenDataset& train,
                                 const TokenDataset& valid);

// Device::peak_flops(), if it is measured by this call. Nothing where the CPU's threads had to wait
// for other programs meanwhile.
std::optional<double> measured_peak(Device&, DType);
// MFU: flops_per_token() at the rate of `m`, as a share of `peak`, the FLOP/s of a large matmul on
// each device. NaN without a peak. A step that is faster shows that `peak` is none, and resets it.
double flops_utilization(const StepMetrics& m, const Config&, std::optional<double>& peak);
// Explains the lines of steps. `unit`: bits_unit(). `peak`: what MFU is a share of; nothing: there
// is no MFU, and why.
std::string legend(const char* unit, std::optional<double> peak);

// Where a run is, by the one clock that it shows: seconds since the program started.
struct RunClock {
  double elapsed = 0;
  double pause = 0;  // mean seconds of an evaluation, with what is drawn and saved behind it
};

// The line of a logged step. `unit` of the loss: "bits" or "bits/dim". MFU is left out where it is
// not finite.
std::string progress_line(const StepMetrics&, const Config&, const char* unit,
                          const RunClock& = {});
std::string evaluation_text(const StepMetrics&);  // the end of that line; "" without an evaluation
// "Nothing was saved since step 3; go on from there". saved_step: of the last checkpoint; -1: none.
std::string nothing_saved(int64_t saved_step);
// "go on with: train ...", a command for a shell that resumes the run in `folder`, of which `step`
// steps are done. `started_by`: as DataParallel says.
std::string go_on_line(const TrainOptions&, const std::string& folder, int64_t step,
                       const std::string& started_by);
// A line when more than a day is left at this rate; "" otherwise.
std::string long_run_warning(const StepMetrics&, const Config&, bool on_gpu);

// ---- `train --batch`: sequences in a micro-batch. It changes train.accumulation, not the tokens
// of an update.

struct MicroBatch {
  int64_t accumulation = 1;  // for train.accumulation
  std::string text;          // for people: what was chosen, and why
};

// `wish`: a number of sequences, or "auto": the most whose planned memory (with an evaluation
// between steps, and `hooks`) fits. Error when it is neither, does not divide the update, or not
// one sequence fits.
MicroBatch choose_micro_batch(const Config&, const std::string& wish, const Device&,
                              const std::vector<TrainHooks>& hooks = {});
// The micro-batch with which the checkpoint was trained, so that sums keep their order. None where
// it does not divide the batch.
std::optional<MicroBatch> micro_batch_of(const std::string& checkpoint, const Config&);
}  // namespace weft
