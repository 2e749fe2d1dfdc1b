// SPDX-License-Identifier: MIT
// Replay by several processes: all replay the same steps, and the one at fault is named.
#include "src/config/config.h"
#include "tests/train/ranks/rank_runs.h"
#include "tests/train/trainer/faults.h"
#include "tests/train/trainer/hooks.h"

#include <filesystem>
#include <omp.h>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
using ReplayOfRanks = RankRuns;

TEST_F(ReplayOfRanks, RanksReplayTheSameStepsAndTheFaultyOneIsNamed) {
  const auto hooks = hooks_of({"--verify-every", "3"});
  if (!hooks) GTEST_SKIP() << "built without --verify-every";
  for (const char* sharded : {"false", "true"}) {
    const auto overrides = with({str("train.shard_optimizer=", sharded), "train.accumulation=2",
                                 "train.bucket_mb=1", "train.steps=6"});
    EXPECT_EQ(run(str("plain", sharded), 2, overrides), "");
    EXPECT_EQ(run(str("verified", sharded), 2, overrides, {.hooks = *hooks}), "");
    expect_same_latest(str("verified", sharded), str("plain", sharded));
    // Between micro-batches, in gradients that all ranks add afterwards; and in what it alone has.
    for (const Fault& fault : {Fault{
                                   .kernel = "embedding_backward",
                            .launch = 7,
                            .block = &ParameterStore::gradients,
                            .parameter = "blocks.0.mlp.up.weight",
                            .element = 5,
                            .bit = 29,
                               },
                               Fault{
                                   .kernel = "adamw_update",
                             .launch = 4,
                             .block = &ParameterStore::compute,
                             .parameter = "output.weight",
                             .element = 6,
                               }}) {
      // several launches
      if (fault.kernel == "adamw_update" && sharded == std::string("true")) continue;
      Ranks processes(2, [&](const World& world) {
        omp_set_num_threads(1);
        ProcessGroup group(world, "test");
        std::ostringstream text;
        Progress progress(text, false);
        Trainer trainer(small_config(dir.path(), overrides),
                        {.out = dir / str(fault.kernel, sharded), .device = "cpu", .hooks = *hooks},
                        progress, group);
        const std::string error = run_with(trainer, world.rank == 1 ? fault : Fault{});
        if (!error.empty()) fail(error);
      });
      EXPECT_TRUE(processes.end());
      for (const int r : {0, 1}) EXPECT_EQ(processes.code(r), 1);
      EXPECT_CONTAINS(processes.errors(0),
                      "step 3 was run twice from one state, and the bits differ: ");
      EXPECT_CONTAINS(processes.errors(0), " (rank 1); a GPU");
      EXPECT_FALSE(std::filesystem::exists(dir / str(fault.kernel, sharded, "/latest.h5")));
    }
  }
}
}  // namespace
}  // namespace weft
