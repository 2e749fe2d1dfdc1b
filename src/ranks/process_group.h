// SPDX-License-Identifier: MIT
// ProcessGroup: the processes of a run. They send small messages over TCP by rank 0, and watch each
// other.
#pragma once

#include "kernels/view.h"
#include "src/processes.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft {
// This process's place among those that train together, from its environment.
struct World {
  int rank = 0, size = 1;              // a process started alone
  int local_rank = 0, local_size = 1;  // among those of this host; local_rank chooses the GPU
  std::string address = "127.0.0.1";   // of rank 0
  int port = 0;                        // where rank 0 listens
  // whose environment said so: "torchrun", "mpirun", "srun", "--gpus"
  std::string source = "alone";
};

// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun, and
// train --gpus, which sets WEFT_GPUS), OMPI_COMM_WORLD_* (mpirun), or SLURM_PROCID, SLURM_LOCALID,
// SLURM_STEP_* (srun). srun needs neither MASTER_ADDR nor MASTER_PORT, mpirun on one host. None
// set: a lone process. Throws Error when they contradict each other, ErrorOfAllRanks when one is
// missing or no number.
World world_from_environment();

// An error that every rank has; `rank` is this one's, 0 where nobody knows.
struct ErrorOfAllRanks : Error {
  ErrorOfAllRanks(int of_rank, const std::string& what)
      : Error(what),
        rank(of_rank) {}

  int rank;
};

// The same from any table: `lookup` gives the value of a variable, null where it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;
World world_from(const EnvironmentLookup& lookup);

// The device of a rank: --device, and of several ranks on a host each its own GPU.
std::string rank_device(const World&, const std::string& device);

class ProcessGroup : public Processes {
 public:
  // Meets the others: rank 0 listens, the others connect. `identity` (lines: version, config ...)
  // must be equal everywhere. Throws Error after `patience`: one line from rank 0 that names the
  // ranks that are missing or differ; a taken port, a wrong world size. Sets SO_REUSEADDR: a
  // launcher may hold the port.
  ProcessGroup(const World&, const std::string& identity,
               std::chrono::seconds patience = std::chrono::seconds(60));
  ~ProcessGroup() override;  // says goodbye: a rank that leaves after it is not taken for dead

  const World& world() const;

  int rank() const override { return world().rank; }

  int size() const override { return world().size; }

  std::vector<std::string> all_gather(const std::string& mine) override;
  std::vector<std::string> gather(const std::string& mine) override;
  void barrier() override;
  std::string broadcast(const std::string& of_rank_0);  // collective, too
  // `trouble`: "" when all is well. Otherwise all leave with exit code 1, and rank 0 prints one
  // line with each rank's trouble; a process alone throws an Error.
  void require_all(const std::string& trouble);

  // This rank cannot go on: every other process ends at once, exit code 1, and rank 0 prints
  // "error: rank 3: <why>". On rank 0 the caller prints it, or gives it as `line` to print before
  // the others end. Returns when rank 0 has spoken, or 10 s later; then only destroy this object.
  void fail(const std::string& why, const std::string& line = "") noexcept;

  // A rank that is dead, hung or cut off ends every other process, exit code 1, with one line that
  // names it and its last step: at once when its process ends, 20 s after its host or process
  // stopped, and when its time for a step is over, even while this process waits for a GPU or a
  // disk. From watch() on a rank must progress within `limit`: report a step or part of one, or
  // enter or leave a collective. It gets three times its longest pause since its first step, and
  // ten limits until two steps are reported, at first and after take_time(), which announces work
  // outside steps. Checkpoints are safe: they are renamed when whole.
  void watch(std::chrono::seconds limit);
  void report_step(int64_t step) override;
  void report_progress() override;
  void take_time() override;

  std::string device(const std::string& asked) const override {
    return rank_device(world(), asked);
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace weft
