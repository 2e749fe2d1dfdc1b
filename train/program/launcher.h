// SPDX-License-Identifier: MIT
// The processes of a program that works on a model: this one alone, or several that a part starts.
#pragma once

#include "src/processes.h"
#include "train/program/progress.h"

#include <functional>
#include <memory>
#include <string>

// included by the few files that describe command lines: it takes seconds to compile
namespace CLI {
class App;
}

namespace weft {
// One object for the program. This class is a process alone.
class Launcher {
 public:
  virtual ~Launcher() = default;

  // Adds options that choose the processes to the command line of a program.
  virtual void add_options(CLI::App&) {}

  // Does `work` in every process. `config` runs first: it makes the text of the task, which must be
  // equal everywhere, or throws. `device`: --device. Throws Error, or SaidElsewhere
  // (train/program/program.h) where another process prints the line.
  using Work = std::function<void(Processes&)>;
  virtual void run(const std::string& device, const std::function<std::string()>& config,
                   const Work& work);

  // An error before run(), in the command line, say. Throws as run() does.
  [[noreturn]] virtual void fail_before_work(const std::string& what);

  // Whether this process speaks for all.
  virtual bool is_first() const { return true; }
};

Launcher& launcher();                          // that of a part, or a process alone
void set_launcher(std::unique_ptr<Launcher>);  // by a part (src/parts/parts.h)

// `of_first` in the first process, a stream that drops everything in others; lines for people
// likewise.
std::ostream& first_output(const Processes&, std::ostream& of_first);
Progress first_progress(const Processes&, std::ostream& of_first, int file_descriptor);
}  // namespace weft
