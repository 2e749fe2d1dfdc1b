// SPDX-License-Identifier: MIT
// Programs that run as several processes, one for each GPU: start, identity, output and errors.
#pragma once

#include "src/ranks/process_group.h"
#include "train/program/progress.h"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace weft {
struct RankOptions {
  int gpus = 0;                 // --gpus: processes to start on this host; 0: the environment says
  std::string device = "auto";  // --device
};

std::string build_id();  // of the program and its libraries of weft
// Lines that must be equal on every rank: version, build, options, and `config`, the task's text.
std::string rank_identity(const std::string& config);

// Does `work` on every rank. With --gpus N, starts N processes of itself and waits. In them, and in
// those of torchrun, mpirun or srun, `work` gets a group that has met; a process alone gets a group
// of one. `config` runs first: it makes the text for rank_identity(), or throws. An Error on one
// rank ends all, and one line names it. Throws Error, or SaidElsewhere (train/program/program.h)
// where another process prints the line.
void with_ranks(const RankOptions&, const std::function<std::string()>& config,
                const std::function<void(ProcessGroup&)>& work);

// Reports an error before work() begins, say in the command line. `what` takes the place of
// `config`. Throws as with_ranks() does: rank 0 prints the error when all ranks have it. Otherwise
// rank 0 prints which ranks have it.
[[noreturn]] void fail_before_work(const std::string& what);
// Whether torchrun, mpirun or srun started this process among others.
bool started_by_others();
bool is_first_process();  // rank 0 by the environment: the one that prints

// Collective: rank 0 shows "rank 0  <text>", "rank 1  <text>" ..., each as that rank gave it.
void print_rank_lines(Processes&, Progress&, const std::string& text);

std::chrono::seconds hang_limit();  // for ProcessGroup::watch(): WEFT_HANG_SECONDS, or 45 s

// What `--gpus N` does. Starts `count` processes of this program with the same command line in
// their own process group, which meet through torchrun's variables and WEFT_GPUS, and waits for
// them. Shares out the cores (OMP_NUM_THREADS, unless set). Passes SIGTERM, SIGINT and SIGHUP on; a
// second one kills them and ends this process. When one fails, all end within seconds, and the
// Error names the first and why. None outlives this process but one that waits for a disk or a
// device, which the Error names. Error: fewer GPUs, too.
void launch_ranks(int count, const std::string& device);

std::vector<std::string> command_line();  // of this process, its name first
}  // namespace weft
