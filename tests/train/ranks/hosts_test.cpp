// SPDX-License-Identifier: MIT
// Training on two hosts: namespaces with network addresses and host names of their own
// (tests/tools/two_hosts.sh), two processes on each.
#include "tests/src/ranks/ranks.h"
#include "tests/train/ranks/ranks_testing.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <vector>

namespace weft {
namespace {
const std::string kTwoHosts = str(WEFT_TEST_SOURCE, "/tests/tools/two_hosts.sh");

class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    Process probe(dir, "/bin/bash", {kTwoHosts, "1", "/bin/true"}, {.name = "probe"});
    const int code = probe.wait();
    if (code == 77) GTEST_SKIP() << probe.err();
    ASSERT_EQ(code, 0) << probe.err();
    write_corpus(dir / "corpus.h5", 6000, 32);
    write_file(dir / "small.yaml", small_yaml(dir.path()));
  }

  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all{kTwoHosts,
                                 "2",
                                 str(WEFT_TEST_BIN, "/train"),
                                 "--config",
                                 dir / "small.yaml",
                                 "--device",
                                 "cpu",
                                 "--out",
                                 dir / "run"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Four processes that train until something ends them.
  std::vector<std::string> endless() const {
    return arguments({"--set", "train.steps=1000000", "--set", "train.eval_every=0", "--set",
                      "train.save_every=100", "--set", "train.log_every=20"});
  }

  void expect_steps(const Process& hosts, double count) const {
    const std::string path = dir / "run/metrics.jsonl";
    EXPECT_TRUE(eventually([&] {
      return std::filesystem::exists(path) && !metric(path, "step").empty() &&
             metric(path, "step").back() >= count;
    })) << hosts.out()
        << hosts.err();
  }

  int64_t saved_step() const { return load_model(dir / "run/latest.h5", "cpu")->state.step; }

  TempDir dir;
};

TEST_F(HostsTest, LossesAreThoseOfOneProcess) {
  Process hosts(dir, "/bin/bash", arguments({"--max-steps", "6", "--set", "train.log_every=1"}),
                {.name = "hosts"});
  ASSERT_EQ(hosts.wait(), 0) << hosts.err();
  EXPECT_EQ(hosts.err(), "");
  EXPECT_CONTAINS(hosts.out(), "4 processes");
  train(small_config(dir.path(), {"train.log_every=1"}),
        {.out = dir / "alone", .device = "cpu", .max_steps = 6});
  const auto losses = metric(dir / "run/metrics.jsonl", "loss"),
             alone = metric(dir / "alone/metrics.jsonl", "loss");
  ASSERT_EQ(losses.size(), 6u);
  ASSERT_EQ(alone.size(), 6u);
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], alone[i], 1e-6 * alone[i]) << i;
}

TEST_F(HostsTest, ARankThatIsKilledOnTheOtherHostEndsAll) {
  Process hosts(dir, "/bin/bash", endless(), {.name = "hosts"});
  expect_steps(hosts, 120);  // it has saved
  let_ranks_report();
  const pid_t victim = rank_process(hosts.pid(), 3);
  ASSERT_GT(victim, 0);
  kill(victim, SIGKILL);
  EXPECT_EQ(hosts.wait(), 1);
  const std::string text = hosts.err();
  EXPECT_CONTAINS(text, str("error: rank 3 (host1, pid ", victim, ") stopped after step "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_GE(saved_step(), 100);
}

TEST_F(HostsTest, AHostThatIsCutOffEndsBoth) {
  Process hosts(
      dir, "/bin/bash", endless(),
      {.environment = {str("CUT=", dir / "cut"), "WEFT_HANG_SECONDS=6"}, .name = "hosts"});
  expect_steps(hosts, 120);  // it has saved
  let_ranks_report();
  const auto began = std::chrono::steady_clock::now();
  write_file(dir / "cut", "");
  EXPECT_EQ(hosts.wait(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  const std::string text = hosts.err();
  EXPECT_CONTAINS(text, "rank 2 (host1, pid ");
  EXPECT_CONTAINS(text, " and rank 3 (host1, pid ");
  EXPECT_CONTAINS(text, "error: rank 0 (host0, pid ");  // what host1 has to say
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_GE(saved_step(), 100);
}

TEST_F(HostsTest, SigtermSaves) {
  Process hosts(dir, "/bin/bash", endless(), {.name = "hosts"});
  expect_steps(hosts, 20);
  hosts.signal(SIGTERM);
  EXPECT_EQ(hosts.wait(), 0) << hosts.err();
  EXPECT_CONTAINS(hosts.out(), str("SIGTERM: stopped after step ", saved_step()));
}
}  // namespace
}  // namespace weft
