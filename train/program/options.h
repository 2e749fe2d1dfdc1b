// SPDX-License-Identifier: MIT
// Options that several programs have. The rest of a command line is in train/<program>.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace weft {

// An option whose help shows its default.
template <class T>
CLI::Option* add_shown(CLI::App& app, const char* name, T& value, const char* text) {
  return app.add_option(name, value, text)->capture_default_str();
}

inline void add_device(CLI::App& app, std::string& device, const char* text = "auto, cpu, cuda or cuda:N") {
  add_shown(app, "--device", device, text);
}

// --config, which comes back, and --set.
inline CLI::Option* add_config(CLI::App& app, std::string& config, std::vector<std::string>& overrides) {
  CLI::Option* file =
      app.add_option("--config", config, "config file; a name that is no path is looked for in configs/");
  app.add_option("--set", overrides, "a.b=c: sets one key of the config; may be repeated")
      ->allow_extra_args(false);
  return file;
}

inline void add_gpus(CLI::App& app, int& gpus) {
  app.add_option("--gpus", gpus,
                 "start so many processes on this host, one a GPU (with --device cpu without any); torchrun "
                 "--no-python, mpirun and srun start them otherwise")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
}

inline void add_weights(CLI::App& app, std::string& weights) {
  auto* which =
      app.add_option("--weights", weights, "ema (the moving average; default where it was kept) or last")
          ->check(CLI::IsMember({"ema", "last"}));
  app.add_flag_callback(
         "--ema", [&weights] { weights = "ema"; }, "--weights ema")
      ->excludes(which);
}

}  // namespace weft
