// SPDX-License-Identifier: MIT
// band/forward copies out of the repository and agrees with definition.h
// (tests/kernels/attention/hopper/copy_band.py).
#include "src/device.h"
#include "tests/temp_dir.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace weft {
namespace {
TEST(CudaCopyBand, TheCopyAgreesWithTheDefinition) {
  if (make_device("cuda")->compute_capability != 90) GTEST_SKIP() << "not a Hopper GPU";
  const char* chosen = std::getenv("WEFT_PYTHON");
  const TempDir dir;
  const std::string report = dir / "report",
                    command = std::string(chosen ? chosen : "python3") +
                              " " WEFT_TEST_SOURCE
                              "/tests/kernels/attention/hopper/copy_band.py --run > " +
                              report + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(report);
}
}  // namespace
}  // namespace weft
