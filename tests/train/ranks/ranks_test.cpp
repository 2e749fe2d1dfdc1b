// SPDX-License-Identifier: MIT
// --gpus N: the same results as one process, one line of output, and one line when something is
// wrong.
#include "train/ranks/ranks.h"

#include "src/config/config.h"
#include "src/files/hash.h"
#include "tests/src/ranks/ranks.h"
#include "tests/train/ranks/ranks_testing.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sampler.h"
#include "train/trainer/run_folder.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <omp.h>
#include <signal.h>
#include <string>
#include <vector>

namespace weft {
namespace {
class RanksTest : public testing::Test {
 protected:
  RanksTest() { write_corpus(dir / "corpus.h5", 6000, 32); }

  void train_some_steps() {
    train(small_config(dir.path(), {"train.steps=4"}), {.out = dir / "run", .device = "cpu"});
  }

  // stdout of a program on a checkpoint; its exit code must be 0.
  std::string output(const std::string& program, std::vector<std::string> arguments, int ranks) {
    arguments.insert(arguments.end(), {"--checkpoint", dir / "run/latest.h5", "--device", "cpu"});
    Launched launched(dir, program, arguments, ranks);
    EXPECT_EQ(launched.wait(), 0) << launched.err();
    notes_ = launched.err();
    return launched.out();
  }

  // The one line of a program that fails; no process is left.
  std::string error_line(const std::string& program, const std::vector<std::string>& arguments,
                         int ranks, const ProcessOptions& options = {}) {
    Launched launched(dir, program, arguments, ranks, options);
    return error_line_of(launched);
  }

  TempDir dir;
  std::string notes_;
};

TEST_F(RanksTest, EvaluateIsTheSameBitsFromAnyNumberOfProcesses) {
  train_some_steps();
  const auto evaluated = [&](int ranks) {
    const std::string losses = dir / (str(ranks, ".h5")), map = dir / (str(ranks, ".png"));
    const std::string line = output("evaluate",
                                    {"--split", "valid", "--min-context", "20", "--batch", "3",
                                     "--losses", losses, "--heatmap", map},
                                    ranks);
    return line + read_file(losses) + read_file(map);
  };
  const std::string one = evaluated(1);
  EXPECT_EQ(json_number(one.substr(0, one.find('\n')), "tokens"), 600);
  for (const int ranks : {2, 3}) {
    EXPECT_TRUE(evaluated(ranks) == one) << ranks;
    EXPECT_EQ(std::count(notes_.begin(), notes_.end(), '\n'), 2) << notes_;  // bits, and the map
  }
  EXPECT_EQ(json_number(output("evaluate", {"--split", "valid", "--batch", "100"}, 2), "tokens"),
            600)
      << "more ranks than batches";
}

TEST_F(RanksTest, SamplesAreTheSameFromAnyNumberOfProcesses) {
  train_some_steps();
  const std::vector<std::string> five{"--count", "5", "--length", "30",
                                      "--batch", "2", "--prompt", "\x03"};
  const std::string one = output("sample", five, 1);
  EXPECT_CONTAINS(one, "==== sample 5 ====");
  EXPECT_EQ(output("sample", five, 2), one);
  EXPECT_EQ(output("sample", five, 3), one);
  EXPECT_EQ(output("sample", {"--length", "12"}, 2), output("sample", {"--length", "12"}, 1))
      << "an idle rank";
  EXPECT_EQ(notes_, "moving average of the weights of step 4\n");
}

TEST_F(RanksTest, PartsOfASetAreTheSetsSamples) {
  train_some_steps();
  const auto loaded = load_model(dir / "run/latest.h5", "cpu");
  const auto drawn = [&](int64_t first, int64_t count, bool cached) {
    std::vector<std::vector<int32_t>> texts(static_cast<std::size_t>(count));
    const SampleOptions options{.length = 10, .count = count, .cached = cached, .first = first};
    sample(*loaded->device, *loaded->model, loaded->config.model, options,
           [&](auto i, auto, auto token) { texts[static_cast<std::size_t>(i)].push_back(token); });
    return texts;
  };
  const auto all = drawn(0, 5, true);
  for (const bool cached : {true, false}) {
    const auto part = drawn(2, 2, cached);
    EXPECT_EQ(part[0], all[2]);
    EXPECT_EQ(part[1], all[3]);
  }
}

TEST_F(RanksTest, WhatIsWrongFromTheStartIsOneLine) {
  train_some_steps();
  const std::vector<std::string> none{"--checkpoint", dir / "none.h5"},
      good{"--checkpoint", dir / "run/latest.h5", "--device", "cuda"};
  EXPECT_CONTAINS(error_line("evaluate", none, 2), "none.h5");
  EXPECT_CONTAINS(error_line("evaluate", good, 2, {.environment = rank_environment(0, 2, 29500)}),
                  "--gpus starts the processes itself; here torchrun has started 2");
  for (const bool gpus : {false, true}) {  // what every rank would say, rank 0 does
    std::vector<std::string> arguments = good, environment = rank_environment(1, 2, 29500);
    if (gpus) arguments.insert(arguments.end(), {"--gpus", "2"});
    if (!gpus) environment.push_back("MASTER_ADDR=");
    Process one(dir, "evaluate", arguments, {.environment = environment});
    EXPECT_EQ(one.wait(), 1);
    EXPECT_EQ(one.err(), "");
  }
  EXPECT_CONTAINS(error_line("evaluate", good, 0), "--gpus");
  EXPECT_CONTAINS(error_line("evaluate", good, 1000), "--gpus 1000: this machine has ");
}

// Launchers end all processes when the first has left with an error: by then rank 0 has spoken.
TEST_F(RanksTest, WhatIsWrongOnAllRanksIsOneLineOfRankZeroAtOnce) {
  train_some_steps();
  const auto said = [&](const std::vector<std::string>& first,
                        const std::vector<std::string>& second,
                        const std::vector<std::string>& more = {}) {
    const int port = free_port();
    std::vector<std::string> environment[2] = {rank_environment(0, 2, port),
                                               rank_environment(1, 2, port)};
    for (auto& variables : environment) variables.insert(variables.end(), more.begin(), more.end());
    Process zero(dir, "sample", first, {.environment = environment[0], .name = "zero"});
    Process one(dir, "sample", second, {.environment = environment[1], .name = "one"});
    EXPECT_EQ(one.wait(), 1);
    zero.signal(SIGKILL);
    zero.wait();
    EXPECT_EQ(one.out() + one.err(), "");
    const std::string line = zero.err();
    EXPECT_EQ(line.find("error: "), 0u) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    return line;
  };
  const std::string path = dir / "run/latest.h5";
  const std::vector<std::string> good{"--checkpoint", path, "--device", "cpu", "--length", "9"},
      unknown{"--checkpoint", path, "--lenght", "9"}, none{"--checkpoint", dir / "none.h5"},
      gpus{"--checkpoint", path, "--gpus", "2"},
      strange{"--checkpoint", path,       "--device", "cpu", "--length", "9",
              "--tokens",     "--prompt", "99"};
  EXPECT_CONTAINS(said(unknown, unknown), "--lenght");
  EXPECT_CONTAINS(said(none, none), "none.h5");
  EXPECT_CONTAINS(said(gpus, gpus), "--gpus starts the processes itself");
  EXPECT_CONTAINS(said(good, good, {"MASTER_PORT=99999"}), "MASTER_PORT=99999");
  EXPECT_CONTAINS(said(good, good, {"LOCAL_WORLD_SIZE="}), "no LOCAL_WORLD_SIZE");
  EXPECT_CONTAINS(said(strange, strange), "prompt: token 0 is 99, the model knows 0 to 31");
  // What another rank alone has, rank 0 says of it.
  for (const auto& of_one : {unknown, none}) {
    const std::string line = said(good, of_one);
    EXPECT_CONTAINS(line, "rank 1 (");
    EXPECT_CONTAINS(line, of_one.size() > 2 ? "--lenght" : "none.h5");
  }
  EXPECT_CONTAINS(said(unknown, good), "--lenght");
}

TEST_F(RanksTest, HelpIsSaidOnce) {
  Process one(dir, "sample", {"--help"}, {.environment = rank_environment(1, 2, 29500)});
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(one.out() + one.err(), "");
}

TEST_F(RanksTest, CoresAreSharedOutUnlessSomebodySaysOtherwise) {
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const auto threads_of = [&](const std::string& out, const std::vector<std::string>& environment) {
    Launched launched(
        dir, "train",
        {"--config", dir / "small.yaml", "--device", "cpu", "--out", dir / out, "--max-steps", "1"},
        2, {.environment = environment});
    EXPECT_EQ(launched.wait(), 0) << launched.err();
    const std::string text = launched.out();
    return std::atoi(text.c_str() + text.find("CPU, ") + 5);
  };
  EXPECT_EQ(threads_of("shared", {}), std::max(1, omp_get_num_procs() / 2));
  EXPECT_EQ(threads_of("said", {"OMP_NUM_THREADS=3"}), 3);
}

TEST_F(RanksTest, RanksSpeakOnRequest) {
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const auto trained = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--config", dir / "small.yaml", "--device",    "cpu",
                                       "--out",    dir / out,          "--max-steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Launched launched(dir, "train", arguments, 2);
    EXPECT_EQ(launched.wait(), 0) << launched.err();
    return launched.out();
  };
  EXPECT_EQ(trained("silent", {}).find("\nrank "), std::string::npos);
  const std::string text = trained("spoken", {"--rank-log"});
  EXPECT_CONTAINS(text, "\nrank 0  cpu");
  EXPECT_CONTAINS(text, "\nrank 1  cpu");
}

TEST_F(RanksTest, AnErrorOfAllRanksIsOneLine) {
  train_some_steps();
  const std::string line = error_line("sample",
                                      {"--checkpoint", dir / "run/latest.h5", "--device", "cpu",
                                       "--length", "9", "--tokens", "--prompt", "99"},
                                      3);
  EXPECT_CONTAINS(line, "prompt: token 0 is 99, the model knows 0 to 31");
}

TEST_F(RanksTest, ProcessesThatDoNotBelongTogetherSaySo) {
  train_some_steps();
  const auto of_both = [&](const std::vector<std::string>& first,
                           const std::vector<std::string>& second, int second_size) {
    const int port = free_port();
    std::vector<std::string> arguments[2] = {first, second};
    for (auto& a : arguments)
      a.insert(a.end(),
               {"--checkpoint", dir / "run/latest.h5", "--device", "cpu", "--length", "9"});
    Process zero(dir, "sample", arguments[0],
                 {.environment = rank_environment(0, 2, port), .name = "zero"});
    Process one(dir, "sample", arguments[1],
                {.environment = rank_environment(1, second_size, port), .name = "one"});
    EXPECT_EQ(zero.wait(), 1) << zero.out();
    EXPECT_EQ(one.wait(), 1) << one.out();
    EXPECT_EQ(one.err(), "");
    return zero.err();
  };
  const std::string seeds = of_both({"--seed", "1"}, {"--seed", "2"}, 2);
  EXPECT_CONTAINS(seeds, "rank 1");
  EXPECT_CONTAINS(seeds, ") runs something else: '--seed 2', rank 0 '--seed 1'\n");
  EXPECT_EQ(std::count(seeds.begin(), seeds.end(), '\n'), 1) << seeds;
  EXPECT_CONTAINS(of_both({}, {}, 3), "of 3");
}

TEST_F(RanksTest, StartedByOthersTheyFindEachOther) {
  train_some_steps();
  const std::vector<std::string> arguments{
      "--checkpoint", dir / "run/latest.h5", "--device", "cpu", "--length", "9", "--count", "4"};
  const int port = free_port();
  Process zero(dir, "sample", arguments,
               {.environment = rank_environment(0, 2, port), .name = "zero"});
  Process one(dir, "sample", arguments,
              {.environment = rank_environment(1, 2, port), .name = "one"});
  EXPECT_EQ(zero.wait(), 0) << zero.err();
  EXPECT_EQ(one.wait(), 0) << one.err();
  EXPECT_EQ(one.out() + one.err(), "");
  Process alone(dir, "sample", arguments);
  EXPECT_EQ(alone.wait(), 0);
  EXPECT_EQ(zero.out(), alone.out());
}

TEST(RankDevice, IsTheGpuOfTheLocalRank) {
  World world{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4};
  EXPECT_EQ(rank_device(world, "cpu"), "cpu");
  EXPECT_EQ(rank_device(world, "cuda"), "cuda:1");
  EXPECT_CONTAINS(error_of([&] { rank_device(world, "cuda:0"); }), "a GPU of their own");
  world.local_size = 1, world.local_rank = 0;
  EXPECT_EQ(rank_device(world, "cuda:3"), "cuda:3");
  EXPECT_EQ(rank_device(World{}, "auto"), "auto");
}

TEST(HangLimit, IsWhatTheEnvironmentSays) {
  unsetenv("WEFT_HANG_SECONDS");
  EXPECT_EQ(hang_limit().count(), 45);
  setenv("WEFT_HANG_SECONDS", "7", 1);
  EXPECT_EQ(hang_limit().count(), 7);
  setenv("WEFT_HANG_SECONDS", "soon", 1);
  EXPECT_CONTAINS(error_of([] { hang_limit(); }),
                  "WEFT_HANG_SECONDS: expected a whole number of seconds from 1, got 'soon'");
  unsetenv("WEFT_HANG_SECONDS");
}

TEST(RankIdentity, DependsOnTheWork) {
  EXPECT_EQ(rank_identity("a"), rank_identity("a"));
  EXPECT_NE(rank_identity("a"), rank_identity("b"));
  EXPECT_CONTAINS(rank_identity("a"), "build ");
  EXPECT_NE(build_id(), Hash().text().substr(0, 8)) << "the linker leaves a build ID";
  for (const std::string& word : command_line())
    EXPECT_EQ(rank_identity("a").find(word) == std::string::npos, word == command_line()[0])
        << word;
  const std::string of_long = rank_identity(std::string(200'000, 'x')), mark = "\nconfig of hash ";
  EXPECT_CONTAINS(of_long, mark);
  EXPECT_EQ(of_long.substr(of_long.find(mark) + mark.size()).size(), 8u);
}
}  // namespace
}  // namespace weft
