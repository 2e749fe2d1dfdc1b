// SPDX-License-Identifier: MIT
// Options that several programs have.
#include "train/program/options.h"

namespace weft {

void add_device(CLI::App& app, std::string& device, const char* text) {
  add_shown(app, "--device", device, text);
}

CLI::Option* add_config(CLI::App& app, std::string& config, std::vector<std::string>& overrides) {
  CLI::Option* file =
      app.add_option("--config", config, "config file; a name that is no path is looked for in configs/");
  app.add_option("--set", overrides, "a.b=c: sets one key of the config; may be repeated")
      ->allow_extra_args(false);
  return file;
}

void add_gpus(CLI::App& app, int& gpus) {
  app.add_option("--gpus", gpus,
                 "start so many processes on this host, one a GPU (with --device cpu without any); torchrun "
                 "--no-python, mpirun and srun start them otherwise")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
}

void add_weights(CLI::App& app, std::string& weights) {
  auto* which =
      app.add_option("--weights", weights, "ema (the moving average; default where it was kept) or last")
          ->check(CLI::IsMember({"ema", "last"}));
  app.add_flag_callback(
         "--ema", [&weights] { weights = "ema"; }, "--weights ema")
      ->excludes(which);
}

}  // namespace weft
