// SPDX-License-Identifier: MIT
#include "train/program/program.h"

#include "kernels/interruption.h"
#include "src/config/names.h"
#include "src/files/error_line.h"
#include "src/files/files.h"
#include "src/parts/parts.h"
#include "train/program/launcher.h"

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <iterator>
#include <new>
#include <omp.h>
#include <optional>
#include <signal.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {
// What to add to an error of CLI11 when a word was mistyped: the commands there are, the nearest
// name.
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
  if (const std::string absent = absent_part_text(word); !absent.empty()) return "; " + absent;
  if (word.starts_with("-")) return found + did_you_mean(word, options);
  if (commands.empty()) return found;
  return str(": ", joined(commands), "; found ", word, did_you_mean(word, commands));
}

// No file gets the number of a closed stdin, stdout or stderr: texts would go into it, not fail.
void hold_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0 && errno == EBADF) {
      const int held = open("/dev/null", file == STDERR_FILENO ? O_WRONLY : O_RDONLY);
      if (held != file && held >= 0) close(held);
    }
}

// What nothing can catch, of an OpenMP thread, say, is said like any other error.
[[noreturn]] void end_with_a_line() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    print_error_line(out_of_memory());
  } catch (const std::exception& e) {
    print_error_line(e.what());
  }
  _exit(1);
}

void check_stdout() {
  errno = 0;
  if (std::cout.flush() && std::fflush(stdout) == 0) return;
  fail("stdout: not all output could be written: ",
       errno != 0 ? disk_error(errno) : "is the disk full, or stdout closed?");
}

// Nothing, or the exit code: it was --help or --version.
std::optional<int> parse(const Program& program, CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0)
      return program.has_ranks && !launcher().is_first() ? 0 : app.exit(e);
    const std::string what = e.what() + help_with(app, e.what()) + " (try --help)";
    if (program.has_ranks) launcher().fail_before_work(what);
    fail(what);
  }
}

// ---- signals ----

constexpr unsigned kSecondsToFinish = 2;  // for the step at hand
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM};

volatile sig_atomic_t received_signal = 0, time_is_up = 0, process_is_alone = 0;
Echo echo;
struct sigaction earlier[std::size(kSignals)];

void handle(int number) {
  if (number == SIGALRM) {
    time_is_up = 1;
    if (process_is_alone != 0) interrupt_requested = true;
    return;
  }
  if (received_signal != 0) {
    if (number == SIGHUP) return;  // shell and kernel each say that the terminal is gone
    if (number == received_signal && echo.lasts()) return;
    _exit(128 + number);
  }
  echo.begin();
  received_signal = number;
  alarm(kSecondsToFinish);
}
}  // namespace

void start_threads() {
  const int count = omp_get_max_threads();
  std::vector<std::thread> trial;
  std::atomic<bool> end = false;
  bool enough = true;
  try {
    while (static_cast<int>(trial.size()) + 1 < count) trial.emplace_back([&] { end.wait(false); });
  } catch (const std::system_error&) {
    enough = false;
  }
  end = true;
  end.notify_all();
  for (std::thread& thread : trial) thread.join();
  if (!enough)
    fail("no room for ", count,
         " threads: raise the limits (ulimit -v, ulimit -u), or lower OMP_NUM_THREADS");
  std::atomic<int> started = 0;
#pragma omp parallel
  ++started;
}

std::string out_of_memory() {
  return "out of memory on the host: lower the batch or the context, or give smaller files";
}

int run_program(const Program& program, int argc, char** argv) {
  hold_standard_files();
  std::set_terminate(end_with_a_line);
  // A file over the size limit is then an error of the write, as a full disk is, not the end of the
  // process.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app(program.purpose, program.name);
  app.set_version_flag("--version", std::string("weft ") + WEFT_VERSION);
  try {
    program.add_options(app);
    const auto stop = parse(program, app, argc, argv);
    // else those of each process (launcher.h)
    if (!stop && !program.has_ranks) start_threads();
    if (!stop) program.work();
    check_stdout();
    return stop.value_or(0);
  } catch (const SaidElsewhere&) {
  } catch (const std::bad_alloc&) {
    print_error_line(program.has_ranks ? out_of_memory()
                                       : "out of memory on the host: give less data, or shorter");
  } catch (const std::exception& e) {
    print_error_line(e.what());
  }
  return 1;
}

StopSignal::StopSignal(bool alone) {
  received_signal = 0;
  time_is_up = 0;
  process_is_alone = alone ? 1 : 0;
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &earlier[i]);
    const bool nohup = kSignals[i] == SIGHUP && earlier[i].sa_handler == SIG_IGN;
    if (!nohup) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  alarm(0);
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &earlier[i], nullptr);
  interrupt_requested = false;
}

const char* StopSignal::received() {
  switch (received_signal) {
    case 0: return nullptr;
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGTERM: return "SIGTERM";
    default: fail("signal ", received_signal, " is not handled here");
  }
}

const char* StopSignal::overdue() { return time_is_up != 0 ? received() : nullptr; }
}  // namespace weft
