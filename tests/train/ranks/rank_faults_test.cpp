// SPDX-License-Identifier: MIT
// Several processes, in one of which a call of the system fails (tests/train/faults/slow_faults.h).
#include "tests/train/faults/slow_faults.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace weft {
namespace {
using SlowFaultsOfRanks = SlowFaults;

TEST_F(SlowFaultsOfRanks, Ranks) {
  more_ = {"--gpus", "2"};
  ASSERT_EQ(run(train_words("whole", more_)), 0) << err_;
  // two processes, that wait
  const long step = std::getenv("WEFT_FAULT_EVERY") ? every() : 3 * every();
  for (const char* rank : {"0", "1", ""}) try_training(train_words("run", more_), rank, step, "");
}

// What rank 0 does not hear or cannot say at the start is said again, or ends all at once.
TEST_F(SlowFaultsOfRanks, RanksThatMeet) {
  const Words attempt = train_words("run", {"--gpus", "2", "--max-steps", "1"});
  for (const char* rank : {"0", "1"}) {
    int tried = 0;
    for (const std::string& call : calls_of(attempt, rank)) {
      if (!call.starts_with("0.0.") || (!call.ends_with("recv") && !call.ends_with("send")))
        continue;
      if (++tried > 6) break;
      std::filesystem::remove_all(dir / "run");
      const auto began = std::chrono::steady_clock::now();
      run_with(attempt, {call.substr(0, call.find(' ')), false, rank});
      EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15))
          << rank << ' ' << call;
    }
  }
}
}  // namespace
}  // namespace weft
