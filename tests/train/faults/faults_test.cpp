// SPDX-License-Identifier: MIT
// Programs of one process, in which one call of the system fails (slow_faults.h).
#include "tests/train/faults/slow_faults.h"

namespace weft {
namespace {
TEST_F(SlowFaults, Train) {
  ASSERT_EQ(run(train_words("whole")), 0) << err_;
  try_training(train_words("run"), "", every(), "");
}

TEST_F(SlowFaults, Resume) {
  ASSERT_EQ(run(train_words("whole")), 0) << err_;
  ASSERT_EQ(run(train_words("half", {"--max-steps", "1"})), 0) << err_;
  try_training(train_words("run", {"--resume"}), "", every(), "half");
}

TEST_F(SlowFaults, EvaluateAndSample) {
  ASSERT_EQ(run(train_words("whole")), 0) << err_;
  try_output(on_checkpoint("evaluate", {"--losses", dir / "l.h5"}), "l.h5");
  try_output(on_checkpoint("sample", {"--seed", "1", "--length", "5", "--out", dir / "s.txt"}),
             "s.txt");
}
}  // namespace
}  // namespace weft
