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

  // Runs `work` in every process. Before that it calls `config` for the text of the task, which
  // must be equal in all processes. `device`: --device. Throws Error, or SaidElsewhere
  // (train/program/program.h) where another process prints the error.
  using Work = std::function<void(Processes&)>;
  virtual void run(const std::string& device, const std::function<std::string()>& config,
                   const Work& work);

  // For an error before run(), such as one in the command line. Throws as run() does.
  [[noreturn]] virtual void fail_before_work(const std::string& what);

  // Whether a resumed run takes this word of its earlier command line again.
  virtual bool keeps(const std::string& /*word*/) const { return true; }

  // Whether this process prints for all.
  virtual bool is_first() const { return true; }
};

Launcher& launcher();                          // that of a part, or a process alone
void set_launcher(std::unique_ptr<Launcher>);  // by a part (src/parts/parts.h)

// Returns `of_first` in the first process, in others a stream that drops everything.
std::ostream& first_output(const Processes&, std::ostream& of_first);
Progress first_progress(const Processes&, std::ostream& of_first, int file_descriptor);
}  // namespace weft
