// SPDX-License-Identifier: MIT
// The folder of one run:
//   config.yaml          the config as run         metrics.jsonl   one object a logged step
//   latest.h5            what --resume goes on from best.h5         lowest validation bits so far
//   step_00001000.h5     every save_every steps; the last `keep` stay
//   lock                 host and pid of the process that writes here; the kernel drops the lock at its end
#pragma once

#include "src/files/checkpoint.h"
#include "src/ranks/sockets.h"

namespace weft {

class RunFolder {
 public:
  // `out` empty: runs/<config name>. `resume`: none for a new run, "" for latest.h5, or a checkpoint. Throws
  // Error before anything is written: a folder with a run, a missing checkpoint, or a config that differs in
  // more than it may (`allowed` as below).
  RunFolder(const Config& config, const std::string& out, const std::optional<std::string>& resume,
            const std::string& allowed = "");

  // The checkpoint to resume; "": a new run. Throws Error when it does not exist.
  static std::string checkpoint_to_resume(const Config& config, const std::string& out,
                                          const std::optional<std::string>& resume);

  // For the process that writes: keeps others out until it ends. Does nothing while there is no folder yet.
  // Throws Error that names who is there. Returns a warning where the file system has no locks, else "".
  std::string lock();
  std::string create(const Config& config);  // makes the folder, writes config.yaml; returns as lock()

  const std::string& resumed_from() const { return resumed_from_; }  // "": a new run
  // What differs from the checkpoint and changes what is trained: a line for each key.
  const std::vector<std::string>& changes() const { return changes_; }
  std::string path(const std::string& file) const;
  std::string history() const;  // the metrics.jsonl beside the checkpoint that is resumed

  // latest.h5, linked as step_<n>.h5; removes all but the last `keep` numbered ones up to this step.
  void save_numbered(Device&, const ParameterStore&, const TrainState&, const std::string& config_yaml,
                     std::int64_t keep) const;

 private:
  void check_latest() const;
  void prune(std::int64_t last_step, std::int64_t keep) const;

  std::string folder_, resumed_from_;
  Descriptor lock_;
  std::vector<std::string> changes_;
};

// The first key that must be equal and is not: "train.batch: 4 in the checkpoint, 8 now"; "" for none.
// src/config/fields.cpp has the rules. `allowed`: a key with OnResume::asked that may differ, "*": all.
std::string deciding_difference(const Config& there, const Config& here, const std::string& allowed = "");

}  // namespace weft
