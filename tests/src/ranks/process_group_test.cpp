// SPDX-License-Identifier: MIT
// Processes that meet, talk and part over the loopback interface, and every way in which they do
// not meet.
#include "src/ranks/process_group.h"

#include "src/files/descriptor.h"
#include "src/ranks/sockets.h"
#include "tests/src/files/failing_calls.h"
#include "tests/src/ranks/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <vector>

namespace weft {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string bytes_of(int rank, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(i * 31 + static_cast<std::size_t>(rank) * 7);
  return bytes;
}

void expect_silence(Ranks& ranks) {
  expect_all_well(ranks);
  for (int rank = 0; rank < ranks.count(); ++rank)
    EXPECT_EQ(ranks.errors(rank), "") << "rank " << rank;
}

// All processes end with code 1, and only rank 0 has something to say; that.
std::string line_of_rank_0(Ranks& ranks, int count) {
  EXPECT_TRUE(ranks.end());
  for (int rank = 0; rank < count; ++rank) EXPECT_EQ(ranks.code(rank), 1) << "rank " << rank;
  for (int rank = 1; rank < count; ++rank) EXPECT_EQ(ranks.errors(rank), "") << "rank " << rank;
  const std::string line = ranks.errors(0);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  return line;
}

TEST(ProcessGroup, OneProcessNeedsNoOthers) {
  ProcessGroup group({}, "x");
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.all_gather("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(group.gather("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(group.broadcast("b"), "b");
  group.barrier();
  group.watch(seconds(1));
  group.report_step(3);
  group.report_progress();
  group.take_time();
  group.require_all("");
  EXPECT_EQ(error_of([&] { group.require_all("no"); }), "no");
  group.fail("no");
}

TEST(ProcessGroup, ThreeProcessesSpeak) {
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    EXPECT_EQ(group.rank(), world.rank);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{3} << 20}) {
      const std::vector<std::string> all =
          group.all_gather(bytes_of(world.rank, size + static_cast<std::size_t>(world.rank)));
      ASSERT_EQ(all.size(), 3u);
      for (int rank = 0; rank < 3; ++rank)
        EXPECT_TRUE(all[static_cast<std::size_t>(rank)] ==
                    bytes_of(rank, size + static_cast<std::size_t>(rank)));
      EXPECT_TRUE(group.broadcast(bytes_of(world.rank, size)) == bytes_of(0, size));
      const std::vector<std::string> gathered = group.gather(bytes_of(world.rank, size));
      EXPECT_EQ(gathered.size(), world.rank == 0 ? 3u : 0u);
      EXPECT_TRUE(world.rank != 0 || gathered[2] == bytes_of(2, size));
    }
    for (int i = 0; i < 200; ++i) group.barrier();
    group.require_all("");
  });
  expect_silence(ranks);
}

TEST(ProcessGroup, ABarrierWaitsForAll) {
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.barrier();
    if (world.rank == 1) std::this_thread::sleep_for(milliseconds(300));
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    const std::string came = std::to_string(now());
    group.barrier();
    const auto left = now();
    for (const std::string& other : group.all_gather(came)) EXPECT_GE(left, std::stoll(other));
  });
  expect_silence(ranks);
}

TEST(ProcessGroup, AnyOrderOfStartsWillDo) {
  for (const int last : {0, 1, 2}) {
    Ranks ranks(3, [last](const World& world) {
      if (world.rank == last) std::this_thread::sleep_for(milliseconds(400));
      ProcessGroup group(world, "same", kPatience);
      EXPECT_EQ(group.broadcast(std::to_string(world.rank)), "0");
      // they leave apart, too
      if (world.rank != last) std::this_thread::sleep_for(milliseconds(200));
    });
    expect_silence(ranks);
  }
}

TEST(ProcessGroup, MissingRanksAreNamed) {
  const TempDir there;
  Ranks ranks(4, [&](const World& world) {
    if (world.rank == 1 || world.rank == 2) _exit(1);
    if (world.rank == 3) write_file(there / "file", "");
    wait_for_file(there / "file");
    ProcessGroup(world, "same", seconds(world.rank == 0 ? 3 : 20));
  });
  EXPECT_CONTAINS(line_of_rank_0(ranks, 4), "error: ranks 1 and 2 of 4 did not come to 127.0.0.1:");
}

TEST(ProcessGroup, ARankWithoutRankZeroSaysSo) {
  Ranks ranks(2, [](const World& world) {
    if (world.rank == 0) return;
    ProcessGroup(world, "same", seconds(1));
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.code(1), 1);
  EXPECT_CONTAINS(ranks.errors(1), "rank 1 did not reach rank 0 at 127.0.0.1:");
}

TEST(ProcessGroup, OtherVersionsAndConfigsAreRefused) {
  Ranks ranks(4, [](const World& world) {
    ProcessGroup(world,
                 world.rank % 2 == 1
                     ? str("weft 2\n--set a=1\n  batch: ", world.rank)
                     : "weft 1\n--set a=1\n  batch: 0\n  steps: 4\n  keep: 1\n  last: 5",
                 kPatience);
  });
  const std::string line = line_of_rank_0(ranks, 4);
  EXPECT_CONTAINS(line, "rank 1 (");
  EXPECT_CONTAINS(
      line, ") runs something else: 'weft 2, batch: 1', rank 0 'weft 1, batch: 0, steps: 4 ...'");
  EXPECT_CONTAINS(
      line, ") runs something else: 'weft 2, batch: 3', rank 0 'weft 1, batch: 0, steps: 4 ...'");
  EXPECT_EQ(line.find("rank 2"), std::string::npos) << line;
}

TEST(ProcessGroup, OtherOptionsInAnotherOrderAreRefused) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup(world, world.rank == 1 ? "--a 1\n--b 2" : "--b 2\n--a 1\n--c", kPatience);
  });
  EXPECT_CONTAINS(line_of_rank_0(ranks, 2),
                  ") runs something else: nothing else, or in another order, rank 0 '--c'");
}

// Rank 0 says what is wrong at once where all are on one host; a name of several hosts may still
// appear.
TEST(ProcessGroup, AHostThatIsNotKnownIsSaid) {
  for (const int local_size : {2, 1}) {
    const auto began = std::chrono::steady_clock::now();
    Ranks ranks(
        2,
        [](const World& world) { ProcessGroup(world, "same", seconds(world.rank == 0 ? 2 : 6)); },
        [=](World& world, int rank) {
          world.address = "no-such-host.invalid";
          world.local_size = local_size;
          world.local_rank = local_size == 1 ? 0 : rank;
        });
    ASSERT_TRUE(ranks.end());
    for (const int rank : {0, 1}) EXPECT_EQ(ranks.code(rank), 1);
    EXPECT_CONTAINS(ranks.errors(0), "the host 'no-such-host.invalid' is not known here");
    if (local_size == 1) {
      EXPECT_CONTAINS(ranks.errors(0), "rank 1 of 2 did not come to ");
      EXPECT_CONTAINS(ranks.errors(1),
                      "within 6 s: the host 'no-such-host.invalid' is not known here");
    } else {
      EXPECT_CONTAINS(ranks.errors(0), "error: MASTER_ADDR: the host ");
      EXPECT_EQ(ranks.errors(1), "");
      EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(20));
    }
  }
}

// Two that start at once may both get the port, and one of them then no connections.
TEST(ProcessGroup, TwoRankZerosAreSaid) {
  with_failing_calls({SYS_listen}, EADDRINUSE, [] {
    EXPECT_CONTAINS(
        error_of([] { listen_on("127.0.0.1", free_port()); }),
        ": the port is taken by another program, or by another process that is rank 0 too");
  });
}

TEST(ProcessGroup, AnotherWorldSizeIsRefused) {
  Ranks ranks(
      3, [](const World& world) { ProcessGroup(world, "same", kPatience); },
      [](World& world, int process) { world.size = process == 2 ? 8 : 3; });
  EXPECT_CONTAINS(line_of_rank_0(ranks, 3), ") takes itself for rank 2 of 8, rank 0 for one of 3");
}

TEST(ProcessGroup, TheSameRankTwiceIsRefused) {
  Ranks ranks(
      3, [](const World& world) { ProcessGroup(world, "same", kPatience); },
      [](World& world, int process) { world.rank = process == 2 ? 1 : process; });
  EXPECT_CONTAINS(line_of_rank_0(ranks, 3), ") is there twice, the other one being on ");
}

// Rank 0 of the second run listens when the first has met; ranks of the second wait until then.
TEST(ProcessGroup, TwoRunsAtOnePortDoNotMix) {
  Ranks ranks(
      6,
      [](const World& world) {
        ProcessGroup group(world, "same", kPatience);
        for (const std::string& run : group.all_gather(world.run)) EXPECT_EQ(run, world.run);
        std::this_thread::sleep_for(milliseconds(200));  // beside the other run
      },
      [](World& world, int process) {
        world.rank = process / 2, world.size = world.local_size = 3;
        world.run = process % 2 == 0 ? "first" : "second";
      });
  expect_silence(ranks);
}

TEST(ProcessGroup, APortOfAnotherRunIsSaid) {
  Ranks ranks(
      3, [](const World& world) { ProcessGroup(world, "same", seconds(3)); },
      [](World& world, int process) {
        world.size = world.local_size = process == 2 ? 2 : 3;
        world.rank = process == 0 ? 0 : 1;
        world.run = process == 2 ? "other" : "run";
      });
  ASSERT_TRUE(ranks.end());
  EXPECT_CONTAINS(ranks.errors(2), "another run has this port; choose another one (MASTER_PORT)");
  EXPECT_CONTAINS(ranks.errors(0), "rank 2 of 3 did not come");
}

TEST(ProcessGroup, ATakenPortIsSaid) {
  const int port = free_port();
  const Descriptor other = listen_on("127.0.0.1", port);
  World world{.size = 2, .local_size = 2, .port = port};
  const std::string error = error_of([&] { ProcessGroup(world, "same", kPatience); });
  EXPECT_CONTAINS(error, str("rank 0 cannot listen at 127.0.0.1:", port, ": the port is taken"));
  EXPECT_CONTAINS(error, "MASTER_PORT");
}

TEST(ProcessGroup, ABoundPortThatNobodyListensAtIsFree) {
  const int port = free_port(), holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(static_cast<uint16_t>(port));
  setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ASSERT_EQ(bind(holder, reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  Ranks ranks(
      2, [](const World& world) { ProcessGroup(world, "same", kPatience).barrier(); },
      [port](World& world, int) { world.port = port; });
  expect_silence(ranks);
  close(holder);
}

// A host may know itself by a loopback address, under a name that is another address elsewhere.
TEST(ProcessGroup, OtherHostsReachAHostThatCallsItselfLoopback) {
  Ranks ranks(
      2, [](const World& world) { ProcessGroup(world, "same", kPatience).barrier(); },
      [](World& world, int process) {
        world.local_rank = 0;
        world.local_size = 1;
        world.address = process == 0 ? "localhost" : "127.0.0.2";
      });
  expect_silence(ranks);
}

TEST(ProcessGroup, StrangersDoNoHarm) {
  Ranks ranks(2, [](const World& world) {
    if (world.rank == 1) {
      std::string why;
      const auto stranger = [&] {
        return connect_to(world.address, world.port, Clock::now() + seconds(10), why);
      };
      std::vector<Descriptor> others;
      for (int i = 0; i < 3; ++i) others.push_back(stranger());  // says nothing, or goes again
      others.back().close();
      for (const std::string& said :
           {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("w"), std::string(40, '\xff')}) {
        others.push_back(stranger());
        EXPECT_GT(send(others.back().get(), said.data(), said.size(), MSG_NOSIGNAL), 0);
      }
      for (const std::string& body :
           {std::string("nonsense"), pack({"1", "2"}), std::string(std::size_t{2} << 20, 'x')}) {
        others.push_back(stranger());
        static_cast<void>(send_frame(others.back(), Kind::hello, body));
      }
      ProcessGroup group(world, "same", kPatience);
      group.barrier();
      return;
    }
    ProcessGroup group(world, "same", kPatience);
    group.barrier();
  });
  expect_silence(ranks);
}

TEST(ProcessGroup, WhatListensInstead) {  // a program that is no rank 0 holds the port at first
  Ranks ranks(2, [](const World& world) {
    if (world.rank == 0) {
      const Descriptor other = listen_on(world.address, world.port);
      for (const auto end = Clock::now() + milliseconds(500); Clock::now() < end;)
        if (const Descriptor visitor = accept_from(other, end))
          static_cast<void>(send(visitor.get(), "hello\n", 6, MSG_NOSIGNAL));
    }
    ProcessGroup group(world, "same", kPatience);
    group.barrier();
  });
  expect_silence(ranks);
}

TEST(ProcessGroup, TroubleOfSomeRanksIsSaidOnce) {
  Ranks ranks(3, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.require_all("");
    group.require_all(world.rank == 0 ? "" : str("no GPU ", world.rank));
  });
  EXPECT_EQ(line_of_rank_0(ranks, 3), "error: rank 1: no GPU 1; rank 2: no GPU 2\n");
}

TEST(ProcessGroup, DifferentCollectivesAreFoundOut) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    group.barrier();
    if (world.rank == 0) {
      group.broadcast("x");
    } else {
      group.barrier();
    }
    group.barrier();
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.code(0), 1);
  EXPECT_CONTAINS(
      ranks.errors(0),
      "ranks disagree on what to do: rank 0 is at collective 4, a gather, and rank 1 (");
}

TEST(ProcessGroup, ARankThatHasLeftIsMissed) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    if (world.rank == 1) return;
    group.barrier();
  });
  ASSERT_TRUE(ranks.end());
  EXPECT_EQ(ranks.code(1), 0);
  EXPECT_CONTAINS(ranks.errors(0),
                  ") has left before its first step, and rank 0 still expects something of it");
}

TEST(Slow, HundredsOfMegabytesGoAround) {
  Ranks ranks(2, [](const World& world) {
    ProcessGroup group(world, "same", kPatience);
    const std::string mine = bytes_of(world.rank, std::size_t{400} << 20);
    EXPECT_TRUE(group.broadcast(mine) == bytes_of(0, mine.size()));
  });
  expect_silence(ranks);
}

TEST(Pack, GivesFieldsBackAndRefusesWhatIsCutOff) {
  const std::vector<std::string> fields{"", "ab", "x and more"};
  const std::string packed = pack(fields);
  std::vector<std::string> back;
  EXPECT_TRUE(unpack(packed, back));
  EXPECT_EQ(back, fields);
  // 8 and 18 bytes are the first one and two
  for (std::size_t size = 1; size < packed.size(); ++size)
    EXPECT_EQ(unpack(packed.substr(0, size), back), size == 8 || size == 18) << size;
}
}  // namespace
}  // namespace weft
