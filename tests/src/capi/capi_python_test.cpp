// SPDX-License-Identifier: MIT
// The C library as PyTorch users call it: tests/tools/peers/torch_attention.py, where there is a PyTorch.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/temp_dir.h"

namespace weft {
namespace {

constexpr int kNoTorch = 77;

void run_torch(const std::string& device) {
  const char* python = std::getenv("WEFT_PYTHON");
  const TempDir dir;
  const std::string report = dir / "report";
  const std::string command = std::string(python ? python : "python3") +
                              " " WEFT_TEST_SOURCE
                              "/tests/tools/peers/torch_attention.py --library " WEFT_TEST_LIB
                              "/libweft_attention.so --device " +
                              device + " > " + report + " 2>&1";
  const int status = std::system(command.c_str());
  const std::string text = read_file(report);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoTorch) GTEST_SKIP() << text;
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find(" passed on " + device), std::string::npos) << text;
}

TEST(CApiTorch, EveryPatternOnTheCpu) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a Python without sanitizers cannot load a library with them";
#endif
  run_torch("cpu");
}

#ifdef WEFT_CUDA
TEST(CudaTorch, EveryPatternOnTheGpu) { run_torch("cuda"); }
#endif

}  // namespace
}  // namespace weft
