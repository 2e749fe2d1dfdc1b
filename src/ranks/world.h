// SPDX-License-Identifier: MIT
// World: which of the processes that train together this one is, as whoever started it says in the
// environment.
#pragma once

#include <functional>
#include <string>

#include "kernels/view.h"

namespace weft {

// Who this process is among those that train together. A process started alone is rank 0 of 1.
struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among those of this host; local_rank chooses the GPU
  std::string address = "127.0.0.1";   // of rank 0
  int port = 0;                        // where rank 0 listens
  std::string source = "alone";        // whose environment said so: "torchrun", "mpirun", "srun", "--gpus"
};

// From the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun,
// and train --gpus, which says so in WEFT_GPUS); OMPI_COMM_WORLD_* (mpirun); SLURM_PROCID, SLURM_LOCALID and
// the variables of a step, SLURM_STEP_* (srun). mpirun and srun need no MASTER_PORT, and no MASTER_ADDR on
// one host; srun needs none on several. A lone process when none of them is set. Throws Error when they
// contradict each other: a rank outside the world; ErrorOfAllRanks when one is missing or no number, or they
// do not say where rank 0 is.
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
