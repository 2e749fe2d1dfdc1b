// SPDX-License-Identifier: MIT
// What every program does around its work: command line, errors, exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

// included by the few files that describe command lines: it takes seconds to compile
namespace CLI {
class App;
}

namespace weft {
struct Program {
  const char* name;
  const char* purpose;
  std::function<void(CLI::App&)> add_options;
  std::function<void()> work;  // runs when the command line has been parsed
  bool has_ranks = false;      // works on a model, which processes may share (launcher.h)
  // Called when the command line has been read: words such as "--batch=2", which are read before
  // it for options that it leaves out. Options of several values get both.
  std::function<std::vector<std::string>()> kept = {};
};

struct SaidElsewhere {};  // thrown by `work` when another process prints the error

// Starts OpenMP's threads. Throws Error where there is no memory for them; libgomp would end the
// process without a word.
void start_threads();

std::string out_of_memory();  // what a program on a model says of std::bad_alloc

// Parses the command line, with --help and --version, and runs the program. Returns the exit code:
// 0, or 1 after one line "error: ..." on stderr (src/files/error_line.h). Bad options and an stdout
// that took less than was written are errors, too. After SaidElsewhere there is no line.
int run_program(const Program&, int argc, char** argv);
}  // namespace weft
