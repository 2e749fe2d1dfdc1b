// SPDX-License-Identifier: MIT
// The part ranks: programs of several processes, started by --gpus, torchrun, mpirun or srun.
#include "train/program/launcher.h"
#include "train/program/options.h"
#include "train/ranks/data_parallel.h"
#include "train/ranks/ranks.h"
#include "train/trainer/extension.h"

#include <memory>
#include <optional>
#include <string>

namespace weft {
namespace {
class RankLauncher : public Launcher {
 public:
  void add_options(CLI::App& app) override {
    app.add_option("--gpus", gpus_,
                   "start so many processes on this host, one a GPU (with --device cpu without "
                   "any); torchrun --no-python, mpirun and srun start them otherwise")
        ->type_name("N")
        ->check(at_least(1));
  }

  void run(const std::string& device, const std::function<std::string()>& config,
           const Work& work) override {
    with_ranks({gpus_, device}, config, work);
  }

  [[noreturn]] void fail_before_work(const std::string& what) override {
    weft::fail_before_work(what);
  }

  bool is_first() const override { return is_first_process(); }

  bool keeps(const std::string& word) const override {
    return !word.starts_with("--gpus=") || !started_by_others();
  }

 private:
  int gpus_ = 0;
};

void log_ranks(const Logged& now) {
  if (now.processes.size() == 1) return;
  print_rank_lines(now.processes, now.progress,
                   str(now.device.name, "  step ", now.metrics.step, "  loss of its share ",
                       now.loss_here, "  ", bytes_text(now.device.pool->peak()), " at the peak"));
}

// --rank-log, and examples.
HooksAsked add_options_of_train(CLI::App& app) {
  const auto log = std::make_shared<bool>(false);
  app.add_flag("--rank-log", *log, "at each log line, a line of every process, too");
  app.footer(app.get_footer() +
             "\n"
             "  train --config enwik8.yaml --gpus 8\n"
             "  torchrun --no-python --nproc-per-node 8 train --config enwik8.yaml\n"
             "  mpirun -n 8 train --config enwik8.yaml");
  return [log] {
    TrainHooks hooks{.name = "ranks"};
    if (*log) hooks.logged = log_ranks;
    return std::optional(hooks);
  };
}

std::unique_ptr<DataParallel> make_rank_parallel(Device& device, Processes& processes) {
  return std::make_unique<RankParallel>(device, dynamic_cast<ProcessGroup&>(processes));
}
}  // namespace

void register_ranks() {
  add_train_options(add_options_of_train);
  set_launcher(std::make_unique<RankLauncher>());
  set_data_parallel(make_rank_parallel);
}
}  // namespace weft
