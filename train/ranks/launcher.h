// SPDX-License-Identifier: MIT
// What `--gpus N` does: N processes of this program on this host.
#pragma once

#include <string>

namespace weft {

// Starts `count` processes of this program with the same command line, in a process group of their own, that
// find each other through RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
// WEFT_GPUS, and waits for them. Cores are shared out (OMP_NUM_THREADS, unless it is set). SIGTERM and SIGINT
// are passed on; a second one kills them and ends this process. When one fails, all are gone within seconds,
// and the Error thrown names the first and says why. None outlives this process, however that ends, but for
// one that the system keeps until a disk or a device answers, which the Error names, too. Throws Error, too,
// when `device` is not the CPU and there are fewer GPUs.
void launch_ranks(int count, const std::string& device);

// Arguments of this process, the program's name left out, one a line.
std::string own_command_line();

}  // namespace weft
