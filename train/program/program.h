// SPDX-License-Identifier: MIT
// What every program does around its work: command line, errors, exit code.
#pragma once

#include <functional>
#include <string>

namespace CLI {  // included by the few files that describe command lines: it takes seconds to compile
class App;
}

namespace weft {

struct Program {
  const char* name;
  const char* purpose;
  std::function<void(CLI::App&)> add_options;
  std::function<void()> work;  // runs when the command line has been parsed
  bool has_ranks = false;      // works on a model, which processes may share (train/ranks/ranks.h)
};

struct SaidElsewhere {};  // thrown by `work` when another process says what went wrong

// Starts OpenMP's threads, before other things take the memory: libgomp itself can only end the process.
// Throws Error when there is no room for them.
void start_threads();

std::string out_of_memory();  // what a program on a model says of std::bad_alloc

// Exit code 0; 1 after "error: ..." on one line of stderr (src/files/error_line.h), for bad options and for
// an stdout that took less than was written to it, too; 1 alone after SaidElsewhere. Adds --help and
// --version.
int run_program(const Program&, int argc, char** argv);

}  // namespace weft
