// SPDX-License-Identifier: MIT
// Processes that die, hang, fail or leave while others still work.
#include "src/ranks/watcher.h"

#include <gtest/gtest.h>

#include "kernels/layers/pointwise.h"
#include "src/ranks/process_group.h"
#include "src/tape.h"
#include "tests/src/ranks/ranks.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{20};

// `stuck` does what it is told when all have met and reported step 1234; the others wait for something that
// never comes, outside the group.
Ranks::Work stuck_at_step(int count, seconds limit, const std::string& ready,
                          const std::function<void(int)>& does) {
  return [=](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    if (limit.count() > 0) group.watch(limit);
    group.report_step(1234);
    group.barrier();
    let_ranks_report();
    write_file(ready + "." + std::to_string(world.rank), std::to_string(count));
    does(world.rank);
    for (;;) pause();
  };
}

struct Case {
  TempDir folder;
  std::string ready = folder / "ready";
  void wait_for(int count) const {
    for (int rank = 0; rank < count; ++rank) wait_for_file(ready + "." + std::to_string(rank));
  }
};

// All but `stopped` end with code 1; the only line is on the stderr of `speaker`.
void expect_end(Ranks& ranks, int count, int stopped, int speaker, const std::string& why) {
  std::vector<int> others;
  for (int rank = 0; rank < count; ++rank)
    if (rank != stopped) others.push_back(rank);
  ASSERT_TRUE(ranks.end(others, seconds(30)));
  for (const int rank : others) {
    EXPECT_EQ(ranks.code(rank), 1) << "rank " << rank;
    EXPECT_TRUE(rank == speaker || ranks.errors(rank).empty())
        << "rank " << rank << ": " << ranks.errors(rank);
  }
  const std::string line = ranks.errors(speaker);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_CONTAINS(line, str("error: rank ", stopped, " ("));
  EXPECT_CONTAINS(line, str(", pid ", ranks.pid(stopped), ") stopped after step 1234: ", why));
}

TEST(Watcher, AKilledRankEndsTheOthers) {
  const Case c;
  Ranks ranks(3, stuck_at_step(3, seconds(0), c.ready, [](int) {}));
  c.wait_for(3);
  ranks.signal(2, SIGKILL);
  expect_end(ranks, 3, 2, 0, "it ended, or was killed, without a goodbye");
}

TEST(Watcher, KillingRankZeroEndsTheOthers) {
  const Case c;
  Ranks ranks(3, stuck_at_step(3, seconds(0), c.ready, [](int) {}));
  c.wait_for(3);
  ranks.signal(0, SIGKILL);
  expect_end(ranks, 3, 0, 1, "it ended, or was killed, without a goodbye");
}

TEST(Watcher, AKilledRankEndsThoseThatWaitInACollective) {
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.report_step(7);
    group.barrier();
    if (world.rank == 1) {
      let_ranks_report();
      raise(SIGKILL);
    }
    group.barrier();
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.code(0), 1);
  EXPECT_EQ(ranks.code(2), 1);
  EXPECT_CONTAINS(ranks.errors(0), ") stopped after step 7: it ended");
  EXPECT_EQ(ranks.errors(2), "");
}

void check_stopped(int stopped, int speaker) {
  const Case c;
  Ranks ranks(3, stuck_at_step(3, seconds(5), c.ready, [](int) {}));
  c.wait_for(3);
  ranks.signal(stopped, SIGSTOP);
  expect_end(ranks, 3, stopped, speaker, "no sign of life for 2.5 s");
  ranks.signal(stopped, SIGCONT);  // and finds the others gone
  ASSERT_TRUE(ranks.end({stopped}));
  EXPECT_EQ(ranks.code(stopped), 1);
}

TEST(Watcher, AStoppedProcessEndsTheOthers) { check_stopped(2, 0); }
TEST(Watcher, StoppingRankZeroEndsTheOthers) { check_stopped(0, 1); }

TEST(Watcher, ARankWithoutStepsIsHung) {
  // The others go on: rank 0 waits in a collective, rank 2 makes steps.
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.watch(seconds(2));
    group.report_step(world.rank == 1 ? 1234 : 1235);
    for (int step = 1235; world.rank == 2; ++step) {
      group.report_step(step);
      std::this_thread::sleep_for(milliseconds(50));
    }
    for (; world.rank == 1;) pause();
    group.barrier();
  });
  ASSERT_TRUE(ranks.end());
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.code(rank), 1);
  EXPECT_CONTAINS(ranks.errors(0), str("error: rank 1 ("));
  EXPECT_CONTAINS(ranks.errors(0), "stopped after step 1234: no progress for 2 s");
  EXPECT_EQ(ranks.errors(1) + ranks.errors(2), "");
}

// What each rank does here takes four times the limit, twice as long as one that stands still is let.
TEST(Watcher, StepsAndWaitingAreLife) {
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.watch(seconds(1));
    for (int step = 0; world.rank == 1 && step < 80; ++step) {
      group.report_step(step);
      std::this_thread::sleep_for(milliseconds(50));
    }
    group.barrier();
    group.watch(seconds(30));  // in place of the one
    std::this_thread::sleep_for(seconds(4));
    group.barrier();
  });
  ASSERT_TRUE(ranks.end());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.code(rank), 0);
    EXPECT_EQ(ranks.errors(rank), "");
  }
}

// Kernels that a rank starts within a step, for as long.
TEST(Watcher, KernelsAreLife) {
  expect_cpu_ranks(2, [](CpuRank& r) {
    r.group.watch(seconds(1));
    Ctx ctx;
    ctx.queue = &r.device->queue;
    const Tensor x(*r.device->pool, {4}, DType::f32);
    r.device->zero(x);
    for (int i = 0; r.rank() == 1 && i < 80; ++i) {
      ctx.launch(Add{{x, false}, x});
      std::this_thread::sleep_for(milliseconds(50));
    }
    r.group.barrier();
  });
}

TEST(Watcher, AFailureIsSaidByRankZero) {
  for (const int failing : {0, 2}) {
    Ranks ranks(3, [failing](const World& world) {
      ProcessGroup group(world, "same", kPatience);
      group.barrier();
      for (; world.rank != failing;) pause();
      group.fail("the disk is full");
      if (world.rank == 0) fail("the disk of rank 0 is full");
      _exit(1);
    });
    ASSERT_TRUE(ranks.end());
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.code(rank), 1);
    EXPECT_EQ(ranks.errors(0),
              failing == 0 ? "error: the disk of rank 0 is full\n" : "error: rank 2: the disk is full\n");
    EXPECT_EQ(ranks.errors(1) + ranks.errors(2), "");
  }
}

// A launcher that ends all processes when the first has ended must not take the line with them.
TEST(Watcher, ARankThatFailsLeavesWhenRankZeroHasSaidWhy) {
  for (const bool fails_too : {false, true}) {
    Ranks ranks(3, [fails_too](const World& world) {
      ProcessGroup group(world, "same", kPatience);
      group.barrier();
      if (world.rank == 0 && fails_too) {
        std::this_thread::sleep_for(milliseconds(1000));
        group.fail("the disk is full", "the disk of rank 0 is full");
        _exit(1);
      }
      for (; world.rank != 2;) pause();
      group.fail("the disk is full");
      _exit(1);
    });
    ASSERT_TRUE(ranks.end({2}));
    EXPECT_EQ(ranks.errors(0),
              fails_too ? "error: the disk of rank 0 is full\n" : "error: rank 2: the disk is full\n");
    ASSERT_TRUE(ranks.end());
    EXPECT_EQ(ranks.code(2), 1);
    EXPECT_EQ(ranks.errors(1) + ranks.errors(2), "");
  }
}

TEST(Watcher, AFailureIsSaidByARankZeroThatIsDone) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.barrier();
    if (world.rank == 0) return std::this_thread::sleep_for(milliseconds(1000));
    group.fail("the disk is full");
    _exit(1);
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.code(0), 1);
  EXPECT_EQ(ranks.errors(0), "error: rank 1: the disk is full\n");
  EXPECT_EQ(ranks.errors(1), "");
}

TEST(Watcher, AFailureIsSaidWhereItIsWaitedFor) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    if (world.rank == 0) group.all_gather("");
    group.fail("no such GPU");
    _exit(1);
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.errors(0), "error: rank 1: no such GPU\n");
  EXPECT_EQ(ranks.code(0), 1);
}

TEST(Watcher, AnErrorThatAllRanksHaveIsSaidOnce) {
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.barrier();
    if (world.rank == 0) std::this_thread::sleep_for(milliseconds(100));
    group.fail("the loss is not finite");
    if (world.rank == 0) fail("the loss is not finite");
    _exit(1);
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.errors(0), "error: the loss is not finite\n");
  EXPECT_EQ(ranks.errors(1) + ranks.errors(2), "");
}

TEST(Watcher, AnExceptionThatUnwindsTheGroupIsAFailure) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.barrier();
    if (world.rank == 1) fail("no more memory");
    for (;;) pause();
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.code(0), 1);
  EXPECT_EQ(ranks.errors(0), "error: rank 1: it ended with an error\n");
  EXPECT_EQ(ranks.errors(1), "error: no more memory\n");
}

RankState alive(std::int64_t step) { return {.step = step, .limit = seconds(30)}; }

TEST(Watcher, WhoHasStopped) {
  using States = std::vector<std::optional<RankState>>;
  States ranks{alive(6), alive(6), alive(6), std::nullopt};
  EXPECT_FALSE(find_stopped(ranks));
  ranks[2]->stillness = milliseconds(30001);
  EXPECT_EQ(find_stopped(ranks)->ranks, std::vector<int>{2});
  // Those that wait for a rank stand still as well, at a later step.
  ranks[0]->step = ranks[1]->step = 5;
  ranks[1]->stillness = seconds(31);
  EXPECT_EQ(find_stopped(ranks)->ranks, std::vector<int>{1});
  ranks[0]->stillness = seconds(31);
  EXPECT_EQ(find_stopped(ranks)->ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(find_stopped(ranks)->why, "no progress for 30 s");
  // A process of which nothing is heard goes before those that stand still.
  ranks[2]->silence = milliseconds(15001);
  EXPECT_EQ(find_stopped(ranks)->ranks, std::vector<int>{2});
  EXPECT_EQ(find_stopped(ranks)->why, "no sign of life for 15 s");
  // Those that stand still because one behind them has not come yet are not hung ...
  ranks = {alive(6), alive(6), alive(5)};
  ranks[0]->stillness = ranks[1]->stillness = seconds(31);
  EXPECT_FALSE(find_stopped(ranks)) << "in their GPUs, for one at an earlier step";
  for (auto& rank : ranks) rank->collectives = 8;
  ranks[1]->collectives = 9;
  ranks[1]->waiting = true;
  ranks[2]->step = 7;
  ranks[0]->stillness = seconds(0);
  EXPECT_FALSE(find_stopped(ranks)) << "in a collective that others have not come to";
  // ... unless that one stands still itself, wherever it is: at work, in a collective that others have left.
  ranks[2]->stillness = seconds(31);
  ranks[0]->step = 7;
  EXPECT_EQ(find_stopped(ranks)->ranks, std::vector<int>{2});
  ranks[2]->waiting = true;
  EXPECT_EQ(find_stopped(ranks)->ranks, std::vector<int>{2});
  ranks[2]->limit = seconds(0);  // nobody watches it yet
  EXPECT_FALSE(find_stopped(ranks));
  // All of a collective that nobody leaves.
  for (auto& rank : ranks) *rank = {.stillness = seconds(31), .limit = seconds(30), .waiting = true};
  EXPECT_EQ(find_stopped(ranks)->ranks, (std::vector<int>{0, 1, 2}));
  // Without a limit, stillness is no fault, and silence one after 20 seconds.
  States unwatched{RankState{.stillness = seconds(1000)}, RankState{.silence = milliseconds(19000)}};
  EXPECT_FALSE(find_stopped(unwatched));
  unwatched[1]->silence = milliseconds(20001);
  EXPECT_EQ(find_stopped(unwatched)->ranks, std::vector<int>{1});
}

}  // namespace
}  // namespace weft
