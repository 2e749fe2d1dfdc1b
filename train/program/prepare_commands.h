// SPDX-License-Identifier: MIT
// Commands of the program `prepare`, and the table through which parts add some
// (src/parts/parts.h).
#pragma once

#include "train/program/options.h"

#include <functional>
#include <string>
#include <vector>

namespace weft {
// Adds commands; what they keep lives as long as the function.
using AddPrepareCommands = std::function<void(Commands)>;
void add_prepare_commands(AddPrepareCommands);
const std::vector<AddPrepareCommands>& prepare_commands();

// ---- what the commands share ----

void say(const std::string& lines);  // to stdout
CLI::Option* add_out(CLI::App* command, std::string& out);
void add_split(CLI::App* command, std::vector<double>& split);
}  // namespace weft
