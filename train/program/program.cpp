// SPDX-License-Identifier: MIT
#include "train/program/program.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <new>
#include <optional>

#include "kernels/view.h"
#include "src/files/error_line.h"
#include "train/ranks/ranks.h"

namespace weft {
namespace {

int print_error(const std::string& what) {
  print_error_line(what);
  return 1;
}

// Idle OpenMP threads spin. On shared cores that slows a training step 20 times (2 cores, load 6); threads
// that sleep at once cost a small model a fifth of its step. So they spin for 0.1 ms (libgomp's count).
// libgomp reads its settings before main(), so this process starts once more. OMP_WAIT_POLICY overrides.
void spin_briefly(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr || setenv("OMP_WAIT_POLICY", "passive", 0) != 0) return;
  setenv("GOMP_SPINCOUNT", "3000", 0);
  execv("/proc/self/exe", argv);  // returns only when it fails: then this process goes on as it is
}

// Nothing, or the exit code: it was --help or --version.
std::optional<int> parse(const Program& program, CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return program.has_ranks && !is_first_process() ? 0 : app.exit(e);
    const std::string what = std::string(e.what()) + " (try --help)";
    program.has_ranks ? fail_before_work(what) : fail(what);
  }
}

}  // namespace

std::string out_of_memory() { return "out of memory on the host: lower the batch or the context"; }

int run_program(const Program& program, int argc, char** argv) {
  spin_briefly(argv);
  // A file over the size limit is then an error of the write, as a full disk is, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app(program.purpose, program.name);
  app.set_version_flag("--version", std::string("weft ") + WEFT_VERSION);
  try {
    program.add_options(app);
    if (const auto stop = parse(program, app, argc, argv)) return *stop;
    program.work();
    return 0;
  } catch (const SaidElsewhere&) { return 1; } catch (const std::bad_alloc&) {
    return print_error(out_of_memory());
  } catch (const std::exception& e) { return print_error(e.what()); }
}

}  // namespace weft
