// SPDX-License-Identifier: MIT
// What comes from outside while several processes train, and options that they cannot have.
#include "tests/train/interruptions.h"

#include <string>

namespace weft {
namespace {
using RankInterruptions = InterruptionsTest;

TEST_F(RankInterruptions, AHangUpSavesAsSigtermDoes) { a_hang_up_saves(" --gpus 2"); }

TEST_F(RankInterruptions, ASecondCtrlCSaysWhatWasKept) { a_second_says_what_was_kept(" --gpus 2"); }

TEST_F(RankInterruptions, ALimitOfTheShellSaves) { a_limit_saves(" --gpus 2"); }

TEST_F(RankInterruptions, NohupGoesOn) { nohup_goes_on(" --gpus 2"); }

TEST_F(RankInterruptions, ALogThatNobodyReadsIsNotTheEnd) {
  an_unread_log_is_not_the_end(" --gpus 2");
}

// The line, pasted into a shell, goes on to the bits of a run that was not stopped.
TEST_F(RankInterruptions, TheLineThatGoesOnDoes) {
  EXPECT_EQ(shell("train --config small.yaml --device cpu --out whole --batch 2 --gpus 2"), 0)
      << err_;
  EXPECT_EQ(shell("train --config small.yaml --device cpu --out run --batch 2 --gpus 2 --rank-log "
                  "--max-minutes 500 --max-steps 7"),
            0)
      << err_;
  EXPECT_EQ(pasted(), "train --resume run --max-minutes 500");
  EXPECT_EQ(shell(pasted()), 0) << err_;
  EXPECT_CONTAINS(out_, "options     --device=cpu --gpus=2 --batch=2 --rank-log (run/options.txt)");
  EXPECT_CONTAINS(out_, "rank 1  cpu  step 20 ");
  EXPECT_TRUE(read_file(dir / "whole/latest.h5") == read_file(dir / "run/latest.h5"));
}

// Runs that start at one moment share a host, its ports and its memory, and nothing else.
TEST_F(RankInterruptions, ManyPairsOfRunsStartAtOnce) {
  EXPECT_EQ(shell("export OMP_NUM_THREADS=1; "
                  "for run in 0 1 2 3 4 5 6 7 8 9; do "
                  "train --config small.yaml --device cpu --out run$run --batch 2 --gpus 2 & "
                  "runs=\"$runs $!\"; done; "
                  "for run in $runs; do wait $run || exit 1; done"),
            0)
      << err_;
  for (int run = 1; run < 10; ++run)
    EXPECT_TRUE(read_file(dir / "run0/latest.h5") == read_file(dir / str("run", run, "/latest.h5")))
        << run;
}

TEST_F(RankInterruptions, NumbersThatCannotBe) {
  const std::string train = "train --config small.yaml --device cpu";
  EXPECT_CONTAINS(refused("sample --checkpoint x --device cpu --gpus 0"),
                  "--gpus: expected a number of at least 1, got 0");
  EXPECT_CONTAINS(refused(train + " --gpus 1000000"), "--gpus 1000000: expected at most ");
  EXPECT_CONTAINS(refused("evaluate --gpu 2"), "did you mean --gpus?");
  for (const char* seconds : {"abc", "12x", "0", "99999999999"})
    for (const char* gpus : {"", " --gpus 2"})
      EXPECT_CONTAINS(
          refused(str("WEFT_HANG_SECONDS=", seconds, " ", train, gpus)),
          str("WEFT_HANG_SECONDS: expected a whole number of seconds from 1, got '", seconds, "'"));
}

TEST_F(RankInterruptions, RanksThatCannotBe) {
  EXPECT_CONTAINS(
      refused("RANK=-1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
              "MASTER_PORT=29500 train --config small.yaml --device cpu"),
      "RANK=-1: expected a number from 0");
}
}  // namespace
}  // namespace weft
