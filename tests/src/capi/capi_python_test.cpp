// SPDX-License-Identifier: MIT
// The Python package: pytest in tests/src/python/, as far as there are pytest, PyTorch and a GPU.
#include "tests/run_python.h"

#include <gtest/gtest.h>
#include <string>

namespace weft {
namespace {
void run_pytest(const std::string& needs, const std::string& which) {
  if (const auto [status, text] = python("-c '" + needs + "'"); status != 0) GTEST_SKIP() << text;
  const auto [status, text] =
      python("-m pytest -q -p no:cacheprovider tests/src/python -k '" + which + "'");
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
  run_pytest(
      "import numpy, pytest, torch; assert torch.cuda.is_available(), \"this PyTorch has no GPU\"",
      "cuda");
}
#endif
}  // namespace
}  // namespace weft
