// SPDX-License-Identifier: MIT
#include "train/program/prepare_commands.h"

#include "src/parts/parts.h"

#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<AddPrepareCommands>& table() {
  static std::vector<AddPrepareCommands> rows;
  return rows;
}
}  // namespace

void add_prepare_commands(AddPrepareCommands row) { table().push_back(std::move(row)); }

const std::vector<AddPrepareCommands>& prepare_commands() {
  register_parts();
  return table();
}

void say(const std::string& lines) { std::cout << lines << '\n'; }

CLI::Option* add_out(CLI::App* command, std::string& out) {
  return add_output(*command, "--out", out, "HDF5 file to write");
}

void add_split(CLI::App* command, std::vector<double>& split) {
  add_shown(*command, "--split", split, "shares of train, valid and test")->delimiter(',');
}
}  // namespace weft
