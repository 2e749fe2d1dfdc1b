// SPDX-License-Identifier: MIT
#include "train/program/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <optional>

#include "kernels/view.h"
#include "src/config/names.h"
#include "src/files/error_line.h"
#include "src/files/files.h"
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

// What to add to an error of CLI11 when a word was mistyped: the commands there are, the nearest name.
std::string help_with(const CLI::App& app, const std::string& what) {
  const CLI::App* at = &app;  // the command that was given last
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  const auto any = [](const auto*) { return true; };
  std::vector<std::string> commands, options;
  for (const CLI::App* command : at->get_subcommands(any)) commands.push_back(command->get_name());
  for (const CLI::Option* option : at->get_options(any))
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return commands.empty() ? "" : ": " + joined(commands);
  const std::string word = unknown[0].substr(0, unknown[0].find('='));
  const std::string found = what.find(word) == std::string::npos ? "; found " + word : "";
  if (word.starts_with("-")) return found + did_you_mean(word, options);
  if (commands.empty()) return found;
  return str(": ", joined(commands), "; found ", word, did_you_mean(word, commands));
}

// A file that is opened never gets the number of a closed stdin, stdout or stderr: texts would go into it.
// Writing to a closed stdout fails.
void hold_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0 && errno == EBADF) {
      const int held = open("/dev/null", file == STDERR_FILENO ? O_WRONLY : O_RDONLY);
      if (held != file && held >= 0) close(held);
    }
}

void check_stdout() {
  errno = 0;
  if (std::cout.flush() && std::fflush(stdout) == 0) return;
  fail(str("stdout: not all output could be written: ",
           errno != 0 ? disk_error(errno) : "is the disk full, or stdout closed?"));
}

// Nothing, or the exit code: it was --help or --version.
std::optional<int> parse(const Program& program, CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return program.has_ranks && !is_first_process() ? 0 : app.exit(e);
    const std::string what = e.what() + help_with(app, e.what()) + " (try --help)";
    program.has_ranks ? fail_before_work(what) : fail(what);
  }
}

}  // namespace

std::string out_of_memory() {
  return "out of memory on the host: lower the batch or the context, or give smaller files";
}

int run_program(const Program& program, int argc, char** argv) {
  hold_standard_files();
  spin_briefly(argv);
  // A file over the size limit is then an error of the write, as a full disk is, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app(program.purpose, program.name);
  app.set_version_flag("--version", std::string("weft ") + WEFT_VERSION);
  try {
    program.add_options(app);
    const auto stop = parse(program, app, argc, argv);
    if (!stop) program.work();
    check_stdout();
    return stop.value_or(0);
  } catch (const SaidElsewhere&) { return 1; } catch (const std::bad_alloc&) {
    return print_error(program.has_ranks ? out_of_memory()
                                         : "out of memory on the host: give less data, or shorter");
  } catch (const std::exception& e) { return print_error(e.what()); }
}

}  // namespace weft
