// SPDX-License-Identifier: MIT
#include "train/program/program.h"

#include "src/config/names.h"
#include "src/files/error_line.h"
#include "src/files/files.h"
#include "src/parts/parts.h"
#include "train/program/launcher.h"

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <new>
#include <omp.h>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {
// For a word that would be the value of an option: "train tiny.yaml", "train runs/my".
std::string did_you_mean_option(const CLI::App& app, const std::string& word) {
  std::error_code none;
  const char* const option = std::filesystem::is_directory(word, none) ? "--resume" : "--config";
  return app.get_option_no_throw(option) ? str("; did you mean ", option, " ", word, "?") : "";
}

// --help. An argument that is a word or an option is described once, as the word.
class HelpText : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    if (is_positional || !option->get_positional())
      return CLI::Formatter::make_option(option, is_positional);
    std::stringstream out;
    CLI::detail::format_help(out, make_option_name(option, false) + " " + option->get_type_name(),
                             "the same as " + option->get_name(true), column_width_);
    return out.str();
  }
};

// The command that was given last.
const CLI::App& command_of(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

// What CLI11 says, with what a missing word stands for: CLI11 names it by its option.
std::string with_meaning(const CLI::App& app, const std::string& what) {
  for (const CLI::Option* o : command_of(app).get_options([](const CLI::Option*) { return true; }))
    if (o->get_positional() && what == o->get_name() + " is required")
      return str(o->get_name(true), " is required: ", o->get_description());
  return what;
}

// What to add to an error of CLI11 when a word was mistyped: the commands there are, the nearest
// name.
std::string help_with(const CLI::App& app, const std::string& what) {
  const CLI::App* at = &command_of(app);
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
  if (commands.empty()) return found + did_you_mean_option(*at, word);
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

// CLI11 itself takes the nearest 64-bit number for one that is too large.
void refuse_large_integers(CLI::App& app) {
  const auto check = [](const std::string& text) {
    const char* const end = text.data() + text.size();
    int64_t value = 0;
    const auto [at, error] = std::from_chars(text.data(), end, value);
    return error == std::errc::result_out_of_range && at == end
               ? str("expected a number of at most ", std::numeric_limits<int64_t>::max(), ", got ",
                     text)
               : std::string();
  };
  for (CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    if (option->get_type_name().starts_with("INT")) option->check(CLI::Validator(check, ""));
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    refuse_large_integers(*command);
}

// Reads the command line; then once more, with kept words for options that it leaves out.
void parse_with_kept(const Program& program, CLI::App& app, int argc, char** argv) {
  app.parse(argc, argv);
  if (!program.kept) return;
  std::vector<const char*> words = {argv[0]};
  const std::vector<std::string> kept = program.kept();
  for (const std::string& word : kept) {
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* option = app.get_option_no_throw(name);
    const std::string absent = absent_part_text(name);
    if (!option)
      fail("the run keeps ", word,
           ", an option that is unknown here: ", absent.empty() ? "" : absent + ", or ",
           "take it out of options.txt in the run folder");
    const bool adds_up = option->get_items_expected_max() > 1;
    if (option->count() == 0 || adds_up) words.push_back(word.c_str());
  }
  words.insert(words.end(), argv + 1, argv + argc);
  if (std::ssize(words) > argc) app.parse(static_cast<int>(words.size()), words.data());
}

// Nothing, or the exit code: it was --help or --version.
std::optional<int> parse(const Program& program, CLI::App& app, int argc, char** argv) {
  std::string what;
  try {
    parse_with_kept(program, app, argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0)
      return program.has_ranks && !launcher().is_first() ? 0 : app.exit(e);
    what = with_meaning(app, e.what()) + help_with(app, e.what()) + " (try --help)";
  } catch (const Error& e) {
    what = e.what();
  }
  if (program.has_ranks) launcher().fail_before_work(what);
  fail(what);
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
  app.formatter(std::make_shared<HelpText>());
  app.set_version_flag("--version", std::string("weft ") + WEFT_VERSION);
  try {
    program.add_options(app);
    refuse_large_integers(app);
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
}  // namespace weft
