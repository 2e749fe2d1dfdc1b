// SPDX-License-Identifier: MIT
// tests/tools/style/check_kernel_log.py: which lines of a build's log are errors.
#include "tests/temp_dir.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace weft {
namespace {
TEST(KernelLog, SpillsAndSerialisedMmasAreFound) {
  const char* chosen = std::getenv("WEFT_PYTHON");
  const std::string python = chosen ? chosen : "python3";
  if (std::system((python + " -c '' 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "no " << python;
  const TempDir dir;
  const auto accepted = [&](const std::string& log) {
    write_file(dir / "log", log);
    return std::system((python + " " WEFT_TEST_SOURCE "/tests/tools/style/check_kernel_log.py " +
                        (dir / "log") + " > /dev/null 2>&1")
                           .c_str()) == 0;
  };
  const auto kernel = [](const std::string& name, int frame, int spilled) {
    return str("ptxas info    : Compiling entry function '_ZN4weft", name, "' for 'sm_90a'\n    ",
               frame, " bytes stack frame, ", spilled, " bytes spill stores, 0 bytes spill loads\n",
               "ptxas info    : Used 168 registers\n");
  };
  const std::string forward = "9attention6hopper14forward_kernelEv", fine = kernel(forward, 0, 0);
  EXPECT_TRUE(accepted(fine));
  EXPECT_TRUE(accepted(fine + kernel("9attention14forward_kernelEv", 8, 4))) << "no Hopper kernel";
  for (const std::string& name :
       {forward, std::string("17linear_activation24linear_activation_kernelEv"),
        std::string("11linear_rows11rows_kernelEv")}) {
    EXPECT_TRUE(accepted(fine + kernel(name, 0, 0)));
    EXPECT_FALSE(accepted(fine + kernel(name, 8, 4))) << name;
    EXPECT_FALSE(accepted(kernel(name, 8, 0) + fine)) << name;
  }
  for (const char* number : {"C7508", "C7510", "C7512"})
    EXPECT_FALSE(accepted(fine + "ptxas info    : (" + number + ") Potential Performance Loss\n"))
        << number;
  EXPECT_FALSE(accepted("ninja: no work to do.\n")) << "nothing was compiled";
}
}  // namespace
}  // namespace weft
