// SPDX-License-Identifier: MIT
// The Python package on the library of this build: pytest in tests/src/python/, as far as there are pytest,
// PyTorch and GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/temp_dir.h"

namespace weft {
namespace {

// Runs python with these arguments; returns its exit status, and what it printed.
std::pair<int, std::string> python(const std::string& arguments) {
  const char* named = std::getenv("WEFT_PYTHON");
  const TempDir dir;
  const std::string report = dir / "report";
  const int status =
      std::system(("cd " WEFT_TEST_SOURCE " && PYTHONPATH=src/python PYTHONDONTWRITEBYTECODE=1 "
                   "WEFT_ATTENTION_LIBRARY=" WEFT_TEST_LIB "/libweft_attention.so " +
                   std::string(named ? named : "python3") + " " + arguments + " > " + report + " 2>&1")
                      .c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(report)};
}

void run_pytest(const std::string& needs, const std::string& which) {
  if (const auto [status, text] = python("-c '" + needs + "'"); status != 0) GTEST_SKIP() << text;
  const auto [status, text] = python("-m pytest -q -p no:cacheprovider tests/src/python -k '" + which + "'");
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find(" passed"), std::string::npos) << text;
}

TEST(CApiPython, OnTheCpu) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a Python without sanitizers cannot load a library with them";
#endif
  run_pytest("import numpy, pytest", "not cuda");
}

#ifdef WEFT_CUDA
TEST(CudaPython, OnTheGpu) {
  run_pytest("import numpy, pytest, torch; assert torch.cuda.is_available(), \"this PyTorch has no GPU\"",
             "cuda");
}
#endif

}  // namespace
}  // namespace weft
