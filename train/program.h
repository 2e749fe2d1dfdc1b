// SPDX-License-Identifier: MIT
// What every program does around its work: command line, errors, exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace weft {

// Parses the command line and does the work. Exit code 0; 1 after "error: ..." on one line of stderr,
// whatever went wrong, the command line included. Adds --version.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work);

}  // namespace weft
