// SPDX-License-Identifier: MIT
// The folder of one run:
//   config.yaml          the config as run         metrics.jsonl   one object a logged step
//   latest.h5            what --resume goes on from best.h5         lowest validation bits so far
//   step_00001000.h5     every save_every steps; the last `keep` stay
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/config/config.h"
#include "src/files/checkpoint.h"

namespace weft {

class RunFolder {
 public:
  // `out` empty: runs/<config name>. `resume`: empty optional for a new run, "" for the folder's latest.h5,
  // otherwise a checkpoint. Checks what may go wrong before anything is trained or written: a new run in a
  // folder that has a latest.h5, a missing checkpoint, a checkpoint whose config decides other results than
  // `config`.
  RunFolder(const Config& config, const std::string& out, const std::optional<std::string>& resume);

  // The checkpoint that such a run goes on from; "": a new run. Throws Error when it does not exist.
  static std::string checkpoint_to_resume(const Config& config, const std::string& out,
                                          const std::optional<std::string>& resume);

  // Makes the folder and writes config.yaml.
  void create(const Config& config) const;

  const std::string& resumed_from() const { return resumed_from_; }  // "": a new run
  std::string path(const std::string& file) const;
  std::string history() const;  // the metrics.jsonl beside the checkpoint that is resumed

  void save_latest(Device&, const ParameterStore&, const TrainState&, const std::string& config_yaml) const;
  // latest.h5, the same file again as step_<n>.h5, and all but the last `keep` numbered ones up to this step
  // removed.
  void save_numbered(Device&, const ParameterStore&, const TrainState&, const std::string& config_yaml,
                     std::int64_t keep) const;
  void save_best(Device&, const ParameterStore&, const TrainState&, const std::string& config_yaml) const;

 private:
  void prune(std::int64_t last_step, std::int64_t keep) const;

  std::string folder_, resumed_from_;
};

// The first key that two configs disagree on and that decides what a training step computes: "train.batch: 4
// there, 8 here"; "" when there is none. The number of steps, when to log, evaluate and save, the name, graph
// capture, recomputing and the folder of the data file may differ.
std::string deciding_difference(const Config& there, const Config& here);

}  // namespace weft
