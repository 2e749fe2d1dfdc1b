// SPDX-License-Identifier: MIT
// ProcessGroup: the processes of one training run, on one host or several, and what they say to each other
// outside the devices: small messages over TCP through rank 0. Watches that all of them live.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft {

// Who this process is among those that train together. A process started alone is rank 0 of 1.
struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among those of this host; local_rank chooses the GPU
  std::string address = "127.0.0.1";   // of rank 0
  int port = 0;                        // where rank 0 listens
  std::string source = "alone";        // whose environment said so: "torchrun", "mpirun", "srun", "--gpus"
};

// From the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun;
// train --gpus N sets the same ones and WEFT_GPUS=N); OMPI_COMM_WORLD_* (mpirun); SLURM_PROCID, SLURM_NTASKS
// ... (srun). A lone process when none of them is set. Throws Error when they contradict each other: a rank
// outside the world, a missing address.
World world_from_environment();

class ProcessGroup {
 public:
  // Meets the others: rank 0 listens, the others connect. `identity` (one line: version, hash of the config)
  // must be the same everywhere. Throws Error after `patience`: one clear line from rank 0 that names the
  // ranks that are missing, or that differ with the identities of both; a taken port, a wrong world size.
  // With SO_REUSEADDR: a launcher may keep the port bound, without listening, until rank 0 takes it.
  ProcessGroup(const World&, const std::string& identity,
               std::chrono::seconds patience = std::chrono::seconds(60));
  ~ProcessGroup();  // says goodbye: a rank that leaves after it is not taken for dead
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const World& world() const;
  int rank() const { return world().rank; }
  int size() const { return world().size; }

  // Collective: every rank calls them in the same order. Bytes, by rank.
  std::vector<std::string> all_gather(const std::string& mine);
  std::string broadcast(const std::string& of_rank_0);
  void barrier();

  // This rank cannot go on: every other process ends at once, exit code 1, and rank 0 prints "error: rank 3:
  // <why>" (the caller prints it where rank() is 0). Afterwards this object is only good for being destroyed.
  void fail(const std::string& why) noexcept;

  // What a watcher's line says of this rank when it dies or hangs: its last step. Costs nothing.
  void report_step(std::int64_t step);
  // From here to disarm() this rank must call report_step() or a collective at least every `limit`; one that
  // does not is taken for hung. A rank that is dead or hung ends every other process within 60 seconds, exit
  // code 1, with one line that names it and its last step. Checkpoints are safe: they are renamed when whole.
  void watch(std::chrono::seconds limit);
  void disarm();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
