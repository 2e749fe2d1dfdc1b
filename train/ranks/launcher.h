// SPDX-License-Identifier: MIT
// What `--gpus N` does: N processes of this program on this host.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Starts `count` processes of this program with the same command line in their own process group, which meet
// through torchrun's variables and WEFT_GPUS, and waits for them. Shares out the cores (OMP_NUM_THREADS,
// unless set). Passes SIGTERM, SIGINT and SIGHUP on; a second one kills them and ends this process. When one
// fails, all end within seconds, and the Error names the first and why. None outlives this process, but for
// one that waits in the system for a disk or a device, which the Error names. Error, too, when there are
// fewer GPUs.
void launch_ranks(int count, const std::string& device);

std::vector<std::string> command_line();  // of this process, its name first

}  // namespace weft
