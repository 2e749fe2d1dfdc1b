// SPDX-License-Identifier: MIT
// Commands and options of images and sound as a shell calls them.
#include "tests/train/shell_test.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

namespace fs = std::filesystem;

namespace weft {
namespace {
using FormatProgramsTest = ShellTest;

TEST_F(FormatProgramsTest, InputsThatAreNoFiles) {
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_directory(dir / "images");
  fs::create_symlink("/dev/zero", dir / "images/a.png");
  for (const char* line :
       {"prepare images images --out o.h5", "prepare imagenet64 --from pipe --valid 1 --out o.h5",
        "prepare cifar10 --from pipe --out o.h5"})
    EXPECT_CONTAINS(refused(str("timeout 20 ", line)), "expected a file");
}

TEST_F(FormatProgramsTest, OptionsAreChecked) {
  EXPECT_CONTAINS(refused("prepare images x --out o.h5 --valid -1"),
                  "--valid: expected a number of at least 0, got -1");
  EXPECT_CONTAINS(refused("sample --checkpoint x --rows 3"), "--complete");
  EXPECT_EQ(shell("prepare --help"), 0);
  for (const char* command : {"audio", "cifar10", "imagenet64", "imagenet32", "images"})
    EXPECT_CONTAINS(out_, command);
}
}  // namespace
}  // namespace weft
