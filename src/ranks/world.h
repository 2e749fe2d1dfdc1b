// SPDX-License-Identifier: MIT
// World: this process's place among those that train together, from its environment.
#pragma once

#include <functional>
#include "kernels/view.h"

namespace weft {
struct World {
  int rank = 0, size = 1;              // a process started alone
  int local_rank = 0, local_size = 1;  // among those of this host; local_rank chooses the GPU
  std::string address = "127.0.0.1";   // of rank 0
  int port = 0;                        // where rank 0 listens
  std::string source = "alone";        // whose environment said so: "torchrun", "mpirun", "srun", "--gpus"
};

// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun, and train --gpus,
// which sets WEFT_GPUS), OMPI_COMM_WORLD_* (mpirun), or SLURM_PROCID, SLURM_LOCALID, SLURM_STEP_* (srun).
// srun needs neither MASTER_ADDR nor MASTER_PORT, mpirun on one host. None set: a lone process. Throws Error
// when they contradict each other, ErrorOfAllRanks when one is missing or no number.
World world_from_environment();

// An error that every rank has; `rank` is this one's, 0 where nobody knows.
struct ErrorOfAllRanks : Error {
  ErrorOfAllRanks(int of_rank, const std::string& what) : Error(what), rank(of_rank) {}
  int rank;
};

// The same from any table: `lookup` gives the value of a variable, null where it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;
World world_from(const EnvironmentLookup& lookup);
}  // namespace weft
