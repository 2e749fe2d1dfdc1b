// SPDX-License-Identifier: MIT
// The folder of one run:
//   config.yaml        the config as run
//   options.txt        the options of train that --resume takes again
//   metrics.jsonl      one object a logged step
//   latest.h5          what --resume goes on from
//   best.h5            lowest validation bits so far
//   step_00001000.h5   every save_every steps; the last `keep` stay
//   lock               host and pid of the process that writes here
// The kernel drops the lock when that process ends.
#pragma once

#include "src/files/checkpoint.h"
#include "src/files/descriptor.h"
#include "src/files/files.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {
class RunFolder {
 public:
  // `out` empty: runs/<config name>. `resume`: none for a new run, "" for latest.h5, or a
  // checkpoint. Throws Error before anything is written: a folder with a run, a missing checkpoint,
  // or a config that differs in more than it may (`allowed` as below).
  RunFolder(const Config& config, const std::string& out, const std::optional<std::string>& resume,
            const std::string& allowed = "");

  // The checkpoint to resume; "": a new run. Throws Error when it does not exist.
  static std::string checkpoint_to_resume(const Config& config, const std::string& out,
                                          const std::optional<std::string>& resume);

  // For the process that writes: keeps others out until it ends. Does nothing while there is no
  // folder yet. Throws Error that names who is there. Returns a warning where the file system has
  // no locks, else "".
  std::string lock();
  // Makes the folder, locks it, writes config.yaml and the options to keep. Returns the warning of
  // lock().
  std::string create(const Config& config, const std::vector<std::string>& options = {});

  const std::string& resumed_from() const { return resumed_from_; }  // "": a new run

  // What differs from the checkpoint: a line for each key, with both values and the effect.
  const std::vector<std::string>& changes() const { return changes_; }

  std::string path(const std::string& file) const;
  std::string history() const;  // the metrics.jsonl beside the checkpoint that is resumed

  // Links latest.h5 as step_<n>.h5. Removes all but the last `keep` numbered ones up to this step.
  void save_numbered(Device&, const ParameterStore&, const TrainState&,
                     const std::string& config_yaml, int64_t keep) const;

 private:
  void check_latest() const;
  void prune(int64_t last_step, int64_t keep) const;

  std::string folder_, resumed_from_;
  Descriptor lock_;
  std::vector<std::string> changes_;
};

// The first key that must be equal and is not: "train.batch: 4 in the checkpoint, 8 now"; "" for
// none. src/config/fields.cpp has the rules. `allowed`: a key with OnResume::asked that may differ;
// "*" allows all of them.
std::string deciding_difference(const Config& there, const Config& here,
                                const std::string& allowed = "");

// ---- metrics.jsonl: one JSON object a logged step. A resumed run first cuts the lines beyond its
// step.

struct StepMetrics {
  int64_t step = 0;  // updates done, from 1
  double loss = 0;   // mean nats per token of this step's batch
  double lr = 0;
  double grad_norm = 0;     // before clipping
  double tokens_per_s = 0;  // since the line before
  double mfu = 0;           // flops_utilization() (report.h)
  int64_t context = 0;
  // in training steps since step 0, without evaluation and saving
  double elapsed_s = 0;
  std::optional<double> loss_scale = {};  // f16 only
  std::optional<int64_t> skipped = {};    // f16 only: updates skipped so far
  // at evaluations; NaN: it was given up
  std::optional<double> valid_bits = {}, valid_bits_ema = {};
  std::optional<int64_t> valid_tokens = {};  // at evaluations: tokens scored

  double bits() const;  // loss in bits per token: per byte for byte data
};

// One line, without the newline. Numbers that are not finite are written as null (JSON has no NaN).
std::string to_json(const StepMetrics&);

// The number under `key` of a flat JSON object written by to_json; empty when there is none.
std::optional<double> json_number(const std::string& line, const std::string& key);

class MetricsLog {
 public:
  // Keeps whole lines of `history` (may be `path`, or missing) up to `resumed_step`; 0: an empty
  // log.
  MetricsLog(std::string path, const std::string& history, int64_t resumed_step);
  // Seconds of training up to `resumed_step`, extrapolated from the last kept line; 0 without one.
  double elapsed_s(int64_t resumed_step, int64_t tokens_per_step) const;
  void append(const StepMetrics&);

  // The run stopped in the evaluation of `resumed_step`: append_evaluation() completes its line.
  bool lacks_evaluation() const { return lacks_evaluation_; }

  void append_evaluation(const StepMetrics&);

 private:
  void append_line(const std::string&) const;

  std::string path_, last_line_;
  bool lacks_evaluation_ = false;
};
}  // namespace weft
