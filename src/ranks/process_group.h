// SPDX-License-Identifier: MIT
// ProcessGroup: the processes of a run. They exchange small messages over TCP through rank 0, and
// each one ends when another is lost.
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
  // The run that this process belongs to: what the launcher calls it, "" where it has no name. Two
  // runs that start at one moment on one host may be given the same port; they never mix.
  std::string run{};
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
  // Connects the processes: rank 0 listens, the others connect. The lines of `identity` (version,
  // config, ...) must be equal everywhere. Throws Error after `patience`, on rank 0, in one line:
  // it names the ranks that are missing or differ, a taken port, or a wrong world size. Sets
  // SO_REUSEADDR, as a launcher may hold the port.
  ProcessGroup(const World&, const std::string& identity,
               std::chrono::seconds patience = std::chrono::seconds(60));
  ~ProcessGroup() override;  // sends goodbye, so that the others do not take this rank for dead

  const World& world() const;

  int rank() const override { return world().rank; }

  int size() const override { return world().size; }

  std::vector<std::string> all_gather(const std::string& mine) override;
  std::vector<std::string> gather(const std::string& mine) override;
  void barrier() override;
  std::string broadcast(const std::string& of_rank_0);  // collective, too
  // Collective. Returns when `trouble` is "" on every rank. Otherwise all processes end with exit
  // code 1, and rank 0 prints one line with the trouble of each rank. A lone process throws Error.
  void require_all(const std::string& trouble);

  // This rank failed. Every other process ends at once with exit code 1, and rank 0 prints
  // "error: rank 3: <why>". On rank 0 the caller prints the error, or passes it as `line` to be
  // printed before the others end. Returns when rank 0 has printed, or after 10 s. Afterwards the
  // object can only be destroyed.
  void fail(const std::string& why, const std::string& line = "") noexcept;

  // Starts to watch the ranks. When one is dead, hung or cut off, every other process ends with
  // exit code 1, and one line names that rank and its last step. This happens
  //   at once       when its process ends,
  //   after 20 s    when its host or process is stopped,
  //   after `limit` without progress, even while this process waits for a GPU or a disk.
  // Progress is a call of report_step() or report_progress(), or a collective begun or ended. The
  // limit is longer where a rank is slow: three times its longest pause since its first step; and
  // ten limits until it has reported two steps, from watch() or take_time() on. take_time()
  // announces work outside of steps. Checkpoints stay whole: they are renamed when complete.
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
