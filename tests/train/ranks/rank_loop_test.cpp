// SPDX-License-Identifier: MIT
// The loop around the steps, in several processes: what it logs, and that all end together.
#include "tests/train/ranks/rank_runs.h"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
using RankLoop = RankRuns;

// Tokens of all processes in the time between two lines, whatever the windows are.
TEST_F(RankLoop, LogsTokensASecondOfAllProcesses) {
  for (const int ranks : {1, 2}) {
    const std::string name = str("of", ranks);
    EXPECT_EQ(run(name, ranks,
                  {"train.log_every=3", "train.eval_every=0", "train.save_every=2",
                   "train.context_schedule=[[0, 16], [9, 64]]"}),
              "");
    const std::vector<double> steps = of(name, "step"), seconds = of(name, "elapsed_s"),
                              rates = of(name, "tokens_per_s");
    ASSERT_EQ(steps, (std::vector<double>{1, 3, 6, 9, 12, 15, 18, 20}));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double count = (steps[i] - (i > 0 ? steps[i - 1] : 0)) * 4 * 64,
                   time = seconds[i] - (i > 0 ? seconds[i - 1] : 0);
      EXPECT_NEAR(rates[i] * time / count, 1, 1e-4) << "line " << i << " of " << name;
    }
  }
}

// A token whose loss is not finite comes to one process at a time, and to the log hardly ever.
TEST_F(RankLoop, ALossThatIsNotFiniteOnOneRankEndsAll) {
  write_rare_token(31, 1000, 1001);
  const std::vector<std::string> rare{"train.steps=2", "train.eval_every=0", "train.save_every=0",
                                      "train.log_every=1000000", "train.ema_decay=0"};
  EXPECT_EQ(run("run", 1, rare), "");
  enlarge_embedding("run", 31);
  std::vector<std::string> endless = rare;
  endless[0] = "train.steps=1000000";
  std::vector<std::string> ends;
  for (const int ranks : {1, 2, 4}) {
    std::vector<std::string> each = endless;
    if (ranks == 1) each.push_back("train.log_every=1");
    fs::copy(dir / "run", dir / str("of", ranks));
    const std::string error = run(str("of", ranks), ranks, each, {.resume = ""});
    EXPECT_CONTAINS(error, "not finite; first tensor: ");
    ends.push_back(error.substr(error.find("step "), error.find(':', error.find("step "))));
    EXPECT_EQ(ends.back().substr(0, ends.back().find(':')),
              ends.front().substr(0, ends.front().find(':')));
  }
}
}  // namespace
}  // namespace weft
