// SPDX-License-Identifier: MIT
#include "train/program/launcher.h"

#include "src/config/names.h"
#include "src/parts/parts.h"
#include "train/program/program.h"

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>

namespace weft {
namespace {
std::unique_ptr<Launcher>& registered() {
  static std::unique_ptr<Launcher> launcher;
  return launcher;
}

// A variable of the environment that an absent part would read counts several processes.
void refuse_several_processes() {
  for (const Part& part : parts()) {
    std::istringstream holds{std::string(part.holds)};
    for (std::string name; !part.built && holds >> name;) {
      const char* value = std::getenv(name.c_str());
      if (value && number_in<int>(value).value_or(0) > 1)
        fail("the environment says ", name, "=", value, ": ", absent_part_text(name));
    }
  }
}
}  // namespace

void Launcher::run(const std::string& /*device*/, const std::function<std::string()>& config,
                   const Work& work) {
  refuse_several_processes();
  config();
  Processes alone;
  start_threads();
  work(alone);
}

void Launcher::fail_before_work(const std::string& what) { fail(what); }

Launcher& launcher() {
  static Launcher alone;
  register_parts();
  return registered() ? *registered() : alone;
}

void set_launcher(std::unique_ptr<Launcher> of_part) { registered() = std::move(of_part); }

std::ostream& first_output(const Processes& processes, std::ostream& of_first) {
  static std::ostream nothing(nullptr);
  return processes.rank() == 0 ? of_first : nothing;
}

Progress first_progress(const Processes& processes, std::ostream& of_first, int file_descriptor) {
  const bool first = processes.rank() == 0;
  return {first_output(processes, of_first), first && isatty(file_descriptor) != 0,
          first ? file_descriptor : -1};
}
}  // namespace weft
