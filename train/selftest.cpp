// SPDX-License-Identifier: MIT
// selftest: random attention cases on this machine against the definition. See train/README.md.
#include <unistd.h>

#include <iostream>

#include "train/program/options.h"
#include "train/program/program.h"

int main(int argc, char** argv) {
  weft::SelftestOptions options;
  const auto add_options = [&](CLI::App& app) { weft::add_selftest_options(app, options); };
  const auto work = [&] {
    weft::Progress progress(std::cerr, isatty(STDERR_FILENO) != 0);
    weft::selftest(options, std::cout, progress);
  };
  const char* purpose = "Checks sparse attention on this machine against its definition, on random cases.";
  return weft::run_program({"selftest", purpose, add_options, work}, argc, argv);
}
