// SPDX-License-Identifier: MIT
// selftest: random attention cases on this machine against the definition. See train/README.md.
#include "tests/cases/random_case.h"
#include "train/program/options.h"
#include "train/program/program.h"

#include <iostream>
#include <unistd.h>

using namespace weft;

static void add_selftest_options(CLI::App& app, SelftestOptions& options) {
  add_device(app, options.device);
  add_shown(app, "--minutes", options.minutes, "how long")->check(more_than(0));
  add_shown(app, "--cases", options.cases, "stop after this many; 0: only the time counts")
      ->check(at_least(0));
  add_shown(app, "--seed", options.seed, "number of the first case; the next ones count on")
      ->check(whole_number<uint32_t>());
  app.add_option("--case", options.only, "run this case alone: a failure prints its number")
      ->check(whole_number<uint32_t>());
  add_shown(app, "--form", options.form,
            "simple, general or hopper: these CUDA kernels alone, in the cases that they cover; "
            "automatic: all");
  app.footer(
      "Each case is a random pattern with random lengths, heads, element type and kernels; it "
      "compares "
      "tables\n"
      "and kernels (forward, backward, decoding) with the definition. Exit code 1 when one fails.\n"
      "Examples:\n"
      "  selftest\n"
      "  selftest --device cpu --minutes 0.5\n"
      "  selftest --device cuda --case 1234");
}

int main(int argc, char** argv) {
  SelftestOptions options;
  const auto add_options = [&](CLI::App& app) { add_selftest_options(app, options); };
  const auto work = [&] {
    Progress progress(std::cerr, isatty(STDERR_FILENO) != 0);
    selftest(options, std::cout, progress);
  };
  const char* purpose =
      "Checks sparse attention on this machine against its definition, on random cases.";
  return run_program({"selftest", purpose, add_options, work}, argc, argv);
}
