// SPDX-License-Identifier: MIT
// Training in f16 by several processes: they skip the same updates.
#include "src/config/config.h"
#include "tests/train/ranks/rank_runs.h"
#include "tests/train/trainer/f16_runs.h"

#include <algorithm>
#include <string>
#include <vector>

namespace weft {
namespace {
class LossScalingOfRanks : public RankRuns {
 protected:
  std::string run_f16(const std::string& name, int ranks, const std::vector<std::string>& overrides,
                      TrainOptions options = {}) {
    options.dtype = DType::f16;
    return run(name, ranks, overrides, options);
  }
};

TEST_F(LossScalingOfRanks, RanksStayTogether) {
  for (const char* sharded : {"false", "true"}) {
    SCOPED_TRACE(sharded);
    auto overrides = f16_run(4, {"train.accumulation=2", "train.bucket_mb=1", "train.save_every=9",
                                 str("train.shard_optimizer=", sharded)});
    const std::string ahead = str("ahead", sharded), waits = str("waits", sharded);
    EXPECT_EQ(run_f16(ahead, 2, overrides, {.max_steps = 13}), "")
        << "weights are compared before they are saved";
    EXPECT_EQ(run_f16(ahead, 2, overrides, {.resume = ""}), "");
    overrides.push_back("train.log_every=1");
    EXPECT_EQ(run_f16(waits, 2, overrides), "");
    for (const char* file : {"/latest.h5", "/step_00000009.h5"})
      expect_same_state(dir / (ahead + file), dir / (waits + file));
    const std::vector<double> scales = of(waits, "loss_scale");
    EXPECT_EQ(scales.size(), 20u);
    EXPECT_EQ(std::count(scales.begin(), scales.end(), 16777216.0), 4) << "behind every fifth step";
    EXPECT_EQ(of(waits, "skipped").back(), 4);
    EXPECT_CONTAINS(text_of(waits, 0), "loss scale 1.67772e+07  skipped 4");
  }
  expect_same_state(latest("aheadtrue"), latest("aheadfalse"));
}

// Whatever was launched behind it: the step that is named, and what is said of it.
TEST_F(LossScalingOfRanks, ARunThatDivergesEndsAsItDoesWhenEachStepIsWaitedFor) {
  for (const int ranks : {1, 2}) {
    auto overrides = f16_run(4, {"train.learning_rate=1e30", "train.warmup=0", "train.clip=0"});
    const std::string ahead = run_f16(str("ahead", ranks), ranks, overrides);
    overrides.push_back("train.log_every=1");
    EXPECT_EQ(ahead, run_f16(str("waits", ranks), ranks, overrides));
    EXPECT_CONTAINS(ahead, "the loss or the gradient is not finite; first tensor: ");
  }
}
}  // namespace
}  // namespace weft
