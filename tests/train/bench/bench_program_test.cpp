// SPDX-License-Identifier: MIT
// What people get wrong on the command line of `bench`.
#include "src/parts/parts.h"
#include "tests/train/shell_test.h"

#include <string>

namespace weft {
namespace {
using BenchProgram = ShellTest;

TEST_F(BenchProgram, MistypedWordsNameTheNearest) {
  EXPECT_CONTAINS(refused("bench stepp"), "found stepp; did you mean step?");
  EXPECT_CONTAINS(refused("bench step --step 2"), "did you mean --steps?");
  if (absent_part_text("--gpus").empty()) {
    EXPECT_CONTAINS(refused("bench step --gpu 2"), "did you mean --gpus?");
  }
}

TEST_F(BenchProgram, NumbersThatCannotBe) {
  EXPECT_CONTAINS(refused("bench step --steps 99999999999999999999"),
                  "--steps: expected a number of at most 9223372036854775807");
}

TEST_F(BenchProgram, AnAbsentPartIsNamedWithItsSwitch) {
  std::string absent = absent_part_text("--gpus");
  if (absent.empty()) absent = absent_part_text("exchange");
  if (absent.empty()) return;
  EXPECT_CONTAINS(refused("bench step --config small.yaml --device cpu --gpus=2"), absent);
}
}  // namespace
}  // namespace weft
