// SPDX-License-Identifier: MIT
// The Python package on the library of this build, in the Python that WEFT_PYTHON names.
#pragma once

#include "tests/temp_dir.h"

#include <cstdlib>
#include <string>
#include <utility>

namespace weft {
// Runs python with these arguments, from the root of the repository: its exit status, and what it
// printed. `with`: what a shell command may have in front, "NAME=value".
inline std::pair<int, std::string> python(const std::string& arguments,
                                          const std::string& with = "") {
  const char* named = std::getenv("WEFT_PYTHON");
  const TempDir dir;
  const std::string report = dir / "report";
  const std::string command =
      "cd " WEFT_TEST_SOURCE
      " && PYTHONPATH=src/python PYTHONDONTWRITEBYTECODE=1 WEFT_ATTENTION_LIBRARY=" WEFT_TEST_LIB
      "/libweft_attention.so WEFT_SAMPLER_LIBRARY=" WEFT_TEST_LIB "/libweft_sampler.so " +
      with + " " + std::string(named ? named : "python3") + " " + arguments + " > " + report +
      " 2>&1";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(report)};
}
}  // namespace weft
