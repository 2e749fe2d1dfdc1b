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

void add_device(CLI::App&, std::string& device, const char* text = "auto, cpu, cuda or cuda:N");
// --config, which comes back, and --set.
CLI::Option* add_config(CLI::App&, std::string& config, std::vector<std::string>& overrides);
void add_gpus(CLI::App&, int& gpus);                // --gpus: processes to start (train/ranks/ranks.h)
void add_weights(CLI::App&, std::string& weights);  // --weights and --ema

}  // namespace weft
