// SPDX-License-Identifier: MIT
// Processes that die, hang, fail or leave while others still work.
#include "src/ranks/watcher.h"

#include "src/ranks/process_group.h"
#include "tests/src/ranks/ranks.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;

// `stuck` does what it is told when all have met and reported step 1234; the others wait for
// something that never comes, outside the group.
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
  expect_end(ranks, 3, 2, 0, "its connection is lost: it ended, or was killed");
}

TEST(Watcher, KillingRankZeroEndsTheOthers) {
  const Case c;
  Ranks ranks(3, stuck_at_step(3, seconds(0), c.ready, [](int) {}));
  c.wait_for(3);
  ranks.signal(0, SIGKILL);
  expect_end(ranks, 3, 0, 1, "its connection is lost: it ended, or was killed");
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
  EXPECT_CONTAINS(ranks.errors(0), ") stopped after step 7: its connection is lost: it ended");
  EXPECT_EQ(ranks.errors(2), "");
}

void check_stopped(int stopped, int speaker) {
  const Case c;
  Ranks ranks(3, stuck_at_step(3, seconds(5), c.ready, [](int) {}));
  c.wait_for(3);
  ranks.signal(stopped, SIGSTOP);
  expect_end(ranks, 3, stopped, speaker, "its connection is lost: no sign of life for 2.5 s");
  ranks.signal(stopped, SIGCONT);  // and finds the others gone
  ASSERT_TRUE(ranks.end({stopped}));
  EXPECT_EQ(ranks.code(stopped), 1);
}

TEST(Watcher, AStoppedProcessEndsTheOthers) { check_stopped(2, 0); }

TEST(Watcher, StoppingRankZeroEndsTheOthers) { check_stopped(0, 1); }

// A host that sleeps stops all its ranks at once. The first to go on hears nothing of the others,
// who are no more dead than itself.
TEST(Watcher, ProcessesThatAllWereStoppedGoOn) {
  const Case c;
  Ranks ranks(3, [&](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.watch(seconds(5));  // silence ends a rank after 2.5 s
    group.report_step(1233);
    group.report_step(1234);
    group.barrier();
    write_file(c.ready + "." + std::to_string(world.rank), "");
    while (access((c.ready + ".go").c_str(), F_OK) != 0) {
      std::this_thread::sleep_for(milliseconds(20));
      group.report_progress();
    }
    group.barrier();
  });
  c.wait_for(3);
  for (const int first : {0, 2}) {
    for (int rank = 0; rank < 3; ++rank) ranks.signal(rank, SIGSTOP);
    std::this_thread::sleep_for(seconds(3));
    ranks.signal(first, SIGCONT);
    std::this_thread::sleep_for(milliseconds(600));
    for (int rank = 0; rank < 3; ++rank) ranks.signal(rank, SIGCONT);
    std::this_thread::sleep_for(milliseconds(600));
  }
  write_file(c.ready + ".go", "");
  expect_all_well(ranks);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.errors(rank), "");
}

// Reports two steps, after which the limit of a step holds.
void begin_steps(ProcessGroup& group, seconds limit) {
  group.watch(limit);
  group.report_step(1233);
  group.report_step(1234);
}

TEST(Watcher, ARankWithoutStepsIsHung) {
  // The others go on: rank 0 waits in a collective, rank 2 makes steps.
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    begin_steps(group, seconds(2));
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
  EXPECT_CONTAINS(ranks.errors(0), "stopped after step 1234: it has not come further for 2 s");
  EXPECT_EQ(ranks.errors(1) + ranks.errors(2), "");
}

// What ranks do here takes four times the limit: one makes steps and then gets on within one,
// others wait.
TEST(Watcher, StepsAndWaitingAreLife) {
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    begin_steps(group, seconds(1));
    for (int i = 0; world.rank == 1 && i < 80; ++i) {
      i < 40 ? group.report_step(1235 + i) : group.report_progress();
      std::this_thread::sleep_for(milliseconds(50));
    }
    group.barrier();
  });
  expect_all_well(ranks);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.errors(rank), "");
}

// The first two steps and work that is no step may take ten times as long, and any as long as those
// before.
TEST(Watcher, SomeWorkMayTakeLonger) {
  const auto long_work = [](ProcessGroup& group, int seconds_long) {
    if (group.rank() == 1) std::this_thread::sleep_for(seconds(seconds_long));
    group.barrier();
  };
  Ranks ranks(2, [&](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.watch(seconds(1));
    long_work(group, 3);
    group.report_step(1);
    long_work(group, 3);
    group.report_step(2);
    long_work(group, 4);
    group.report_step(3);
    group.take_time();
    long_work(group, 4);
  });
  expect_all_well(ranks);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.errors(rank), "");
}

TEST(Watcher, ThisWorkMustNotTakeForEver) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    begin_steps(group, seconds(1));
    group.take_time();
    for (; world.rank == 1;) pause();
    group.barrier();
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_CONTAINS(ranks.errors(0), "error: rank 1 (");
  EXPECT_CONTAINS(ranks.errors(0), "stopped after step 1234: it has not come further for 10 s");
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
    EXPECT_EQ(ranks.errors(0), failing == 0 ? "error: the disk of rank 0 is full\n"
                                            : "error: rank 2: the disk is full\n");
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
    EXPECT_EQ(ranks.errors(0), fails_too ? "error: the disk of rank 0 is full\n"
                                         : "error: rank 2: the disk is full\n");
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

TEST(Watcher, WhoHoldsUpTheOthers) {
  const auto at = [](int64_t step, int quiet, bool waiting = false) {
    return RankState{
        .step = step,
        .quiet = seconds(quiet),
        .allowed = seconds(30),
        .waiting = waiting,
    };
  };
  using Hung = std::vector<int>;
  EXPECT_EQ(find_hung({at(6, 0), at(6, 0), at(6, 0), std::nullopt}, -1), Hung{});
  EXPECT_EQ(find_hung({at(6, 31), at(6, 30), at(7, 31)}, -1), Hung{})
      << "one of those at the lowest step moves";
  EXPECT_EQ(find_hung({at(6, 31), at(6, 31), at(7, 40)}, -1), (Hung{0, 1}));
  EXPECT_EQ(find_hung({at(6, 31), at(5, 31), at(6, 40)}, -1), Hung{1})
      << "whose GPU the others wait for";
  EXPECT_EQ(find_hung({at(6, 40), at(5, 0), at(6, 40)}, -1), Hung{})
      << "who wait for one that moves";
  EXPECT_EQ(find_hung({at(5, 40, true), at(7, 31), at(5, 40, true)}, 1), Hung{1})
      << "they wait for it";
  EXPECT_EQ(find_hung({at(5, 31, true), at(5, 31, true), at(5, 31, true)}, 2), Hung{2})
      << "all wait";
  EXPECT_EQ(find_hung({at(5, 31, true), at(5, 31, true)}, 0), Hung{0});
  EXPECT_EQ(find_hung({at(5, 31, true), at(5, 31, true), std::nullopt}, 2), Hung{})
      << "it has left";
  const auto ended = [](RankState state, uint64_t collectives) {
    state.collectives = collectives;
    return state;
  };
  EXPECT_EQ(find_hung({ended(at(6, 31), 9), ended(at(6, 31, true), 8)}, -1), Hung{1})
      << "it was stopped after rank 0 had answered; the GPU of rank 0 waits for it";
  EXPECT_EQ(find_hung({ended(at(6, 31), 8), ended(at(6, 31, true), 8)}, -1), Hung{0})
      << "rank 0 has not answered";
  EXPECT_EQ(
      find_hung({ended(at(6, 31), 9), ended(at(5, 31, true), 8), ended(at(7, 31, true), 10)}, -1),
      Hung{1});
  EXPECT_EQ(find_hung({RankState{.quiet = seconds(1000)}, at(6, 0)}, -1), Hung{})
      << "nobody watches it";
  EXPECT_EQ(find_hung({std::nullopt, std::nullopt}, -1), Hung{});
}
}  // namespace
}  // namespace weft
