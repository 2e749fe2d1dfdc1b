// SPDX-License-Identifier: MIT
// prepare: raw data in, a token file out. See data/README.md.
#include "data/prepare.h"

#include <CLI/CLI.hpp>
#include <iostream>

int main(int argc, char** argv) {
  CLI::App app("Makes the HDF5 files that training reads", "prepare");
  weft::PrepareArguments arguments;
  weft::add_prepare_commands(app, arguments);
  try {
    app.parse(argc, argv);
    std::cout << weft::run_prepare(app, arguments) << "\n";
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
