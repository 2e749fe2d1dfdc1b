// SPDX-License-Identifier: MIT
// Options that several programs have. The rest of a command line is in train/<program>.cpp.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

void add_device(CLI::App&, std::string& device, const char* text = "auto, cpu, cuda or cuda:N");
// --config, which comes back, and --set.
CLI::Option* add_config(CLI::App&, std::string& config, std::vector<std::string>& overrides);
void add_gpus(CLI::App&, int& gpus);                // --gpus: processes to start (train/ranks/ranks.h)
void add_weights(CLI::App&, std::string& weights);  // --weights and --ema

}  // namespace weft
