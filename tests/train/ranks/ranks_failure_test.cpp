// SPDX-License-Identifier: MIT
// Training on several processes when something goes wrong: all of them end, one line says why, no
// process is left, and the checkpoints are whole.
#include "src/config/config.h"
#include "src/files/checkpoint.h"
#include "src/files/descriptor.h"
#include "src/ranks/sockets.h"
#include "tests/src/ranks/ranks.h"
#include "tests/train/ranks/ranks_testing.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <signal.h>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
class RanksFailureTest : public testing::Test {
 protected:
  RanksFailureTest() {
    write_corpus(dir / "corpus.h5", 6000, 32);
    write_file(dir / "small.yaml", small_yaml(dir.path()));
  }

  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"--config", dir / "small.yaml", "--device", "cpu",
                                 "--out",    dir / "run"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // A run that goes on until something ends it.
  std::vector<std::string> endless() const {
    return arguments({"--set", "train.steps=1000000", "--set", "train.eval_every=0", "--set",
                      "train.save_every=100", "--set", "train.log_every=20"});
  }

  // Waits until the run has done 200 steps, with which endless() saves twice, and its ranks have
  // told each other where they are.
  void expect_200_steps(const Launched& launched) const {
    EXPECT_TRUE(eventually([&] {
      return fs::exists(dir / "run/metrics.jsonl") &&
             !metric(dir / "run/metrics.jsonl", "step").empty() &&
             metric(dir / "run/metrics.jsonl", "step").back() >= 200;
    })) << launched.out()
        << launched.err();
    let_ranks_report();
  }

  // Ends with exit code 1 and one line, which is returned; checkpoints can be loaded.
  std::string error_line(Launched& launched) const {
    const std::string text = error_line_of(launched);
    int checkpoints = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir / "run"))
      if (entry.path().extension() == ".h5") {
        EXPECT_GT(load_model(entry.path(), "cpu")->state.step, 0) << entry.path();
        ++checkpoints;
      }
    EXPECT_GT(checkpoints, 0);
    return text;
  }

  // What rank 0 says when rank 1 is started with other words, or is another program.
  std::string said_of(const std::vector<std::string>& of_one, const std::string& program = "train",
                      const std::vector<std::string>& more = {}) const {
    const int port = free_port();
    std::vector<std::string> environment = rank_environment(1, 2, port);
    environment.insert(environment.end(), more.begin(), more.end());
    Process zero(dir, "train", arguments(),
                 {.environment = rank_environment(0, 2, port), .name = "zero"});
    Process one(dir, program, of_one, {.environment = environment, .name = "one"});
    EXPECT_EQ(one.wait(), 1);
    EXPECT_EQ(one.err(), "");
    return error_line_of(zero);
  }

  TempDir dir;
};

TEST_F(RanksFailureTest, ARankThatIsKilledEndsAll) {
  Launched launched(dir, "train", endless(), 4);
  expect_200_steps(launched);
  launched.signal_rank(2, SIGKILL);
  const std::string line = error_line(launched);
  EXPECT_CONTAINS(line, "rank 2 was ended by signal 9");
  EXPECT_CONTAINS(line, "step ");
}

TEST_F(RanksFailureTest, RankZeroThatIsKilledEndsAll) {
  Launched launched(dir, "train", endless(), 2);
  expect_200_steps(launched);
  launched.signal_rank(0, SIGKILL);
  EXPECT_CONTAINS(error_line(launched), "rank 0 was ended by signal 9");
}

TEST_F(RanksFailureTest, ARankThatStopsEndsAll) {
  Launched launched(dir, "train", endless(), 2, {.environment = {"WEFT_HANG_SECONDS=6"}});
  expect_200_steps(launched);
  launched.signal_rank(1, SIGSTOP);
  const std::string line = error_line(launched);
  EXPECT_CONTAINS(line, "rank 1");
  EXPECT_CONTAINS(line, "step ");
}

// Wherever it hangs: at work, in a collective, while a checkpoint is written.
TEST_F(RanksFailureTest, ARankThatHangsEndsAll) {
  std::vector<std::string> words = endless();
  words.insert(words.end(), {"--set", "train.save_every=2"});
  Launched launched(dir, "train", words, 4, {.environment = {"WEFT_HANG_SECONDS=1"}});
  EXPECT_TRUE(eventually([&] { return fs::exists(dir / "run/latest.h5"); }));
  launched.expect_ranks();
  HungThread thread(launched.rank(3));
  if (!thread) GTEST_SKIP() << "this process may not trace others";
  thread.wait_for_end();
  EXPECT_CONTAINS(error_line(launched), "rank 3 (");
}

// One whose host or process is stopped, and one that hangs in a step, both where the log has no
// lines; and rank 0, whose disk takes nothing more of a checkpoint, so that it cannot even be
// killed: who started it does not hear of its end.
TEST_F(RanksFailureTest, HangsEndAllWithinAMinuteHoweverRareTheLog) {
  const auto start = [&](const std::string& out) {
    std::vector<std::string> words = endless();
    words[5] = dir / out;
    words.insert(words.end(), {"--set", "train.log_every=1000000", "--set", "train.keep=1000"});
    ProcessOptions options{.name = out};
    // files have ten times that
    if (out == "writing") options.environment = {"WEFT_HANG_SECONDS=4"};
    if (out == "hung") words.insert(words.end(), {"--set", "train.save_every=0"});
    return std::make_unique<Launched>(dir, "train", words, 2, options);
  };
  const auto stopped = start("stopped"), hung = start("hung"), writing = start("writing");
  for (const char* file :
       {"stopped/step_00000100.h5", "writing/step_00000100.h5", "hung/metrics.jsonl"})
    ASSERT_TRUE(eventually([&] { return fs::exists(dir / file); }));
  let_ranks_report();
  hung->expect_ranks();
  writing->expect_ranks();
  HungThread writer(writing->rank(0));
  if (!writer) GTEST_SKIP() << "this process may not trace others";
  ASSERT_TRUE(writer.runs_to_disk_call(" (deleted)"));
  HungThread thread(hung->rank(1));
  const int64_t whole = load_model(dir / "writing/latest.h5", "cpu")->state.step;
  stopped->signal_rank(1, SIGSTOP);
  const auto began = std::chrono::steady_clock::now();
  const auto expect_line = [&](Launched& launched, const std::string& rank,
                               const std::string& why) {
    const std::string line = error_line_of(launched);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
    EXPECT_CONTAINS(line, rank);
    EXPECT_CONTAINS(line, ") stopped after step ");
    EXPECT_CONTAINS(line, why);
  };
  expect_line(*stopped, "error: rank 1 (", "its connection is lost: no sign of life for 20 s");
  expect_line(*writing, "error: rank 0 (",
              str(") stopped after step ", whole + 100, ": it has not come further for 40 s"));
  EXPECT_CONTAINS(writing->err(), "rank 0 (pid ");
  EXPECT_CONTAINS(writing->err(),
                  " was killed and will end when the disk or device that it waits for answers");
  EXPECT_EQ(load_model(dir / "writing/latest.h5", "cpu")->state.step, whole);
  thread.wait_for_end();
  writer.wait_for_end();
  expect_line(*hung, "rank 1 (", "it has not come further for 45 s");
  for (const char* out : {"stopped", "writing"})
    EXPECT_GE(load_model(dir / (str(out, "/step_00000100.h5")), "cpu")->state.step, 100);
}

// Rank 1 is held from the start, so that it is seen to come to the file.
TEST_F(RanksFailureTest, ARankThatHangsWhileItReadsACheckpointEndsAll) {
  train(small_config(dir.path(), {"train.steps=3"}), {.out = dir / "run", .device = "cpu"});
  const std::vector<std::string> words = arguments({"--resume", "--set", "train.steps=50"});
  const int port = free_port();
  const auto options = [&](int rank, const std::string& name) {
    ProcessOptions of_rank{.environment = rank_environment(rank, 2, port), .name = name};
    of_rank.environment.emplace_back("WEFT_HANG_SECONDS=1");
    return of_rank;
  };
  Process one(dir, "train", words, options(1, "one"));
  HungThread reader(one.pid());
  if (!reader) GTEST_SKIP() << "this process may not trace others";
  Process zero(dir, "train", words, options(0, "zero"));
  ASSERT_TRUE(reader.runs_to_disk_call("/latest.h5"));
  EXPECT_CONTAINS(error_line_of(zero),
                  ") stopped before its first step: it has not come further for 10 s");
  EXPECT_CONTAINS(zero.err(), "error: rank 1 (");
  reader.wait_for_end();
  EXPECT_EQ(load_model(dir / "run/latest.h5", "cpu")->state.step, 3);
}

// A disk that takes three times the limit for a checkpoint.
TEST_F(RanksFailureTest, ASlowDiskIsNoHang) {
  constexpr std::chrono::seconds kLimit(2);
  Launched launched(dir, "train", arguments({"--set", "train.eval_every=0", "--max-steps", "5"}), 2,
                    {.environment = {str("WEFT_HANG_SECONDS=", kLimit.count())}});
  launched.expect_ranks();
  HungThread rank_0(launched.rank(0));
  if (!rank_0) GTEST_SKIP() << "this process may not trace others";
  ASSERT_TRUE(rank_0.runs_to_disk_call(" (deleted)")) << launched.out() << launched.err();
  std::this_thread::sleep_for(3 * kLimit);
  rank_0.let_go();
  EXPECT_EQ(launched.wait(), 0) << launched.out() << launched.err();
  EXPECT_EQ(load_model(dir / "run/latest.h5", "cpu")->state.step, 5);
}

TEST_F(RanksFailureTest, SigtermSavesAndAnyNumberOfRanksGoesOn) {
  {
    std::vector<std::string> words = endless();
    words.insert(words.end(), {"--set", "train.save_every=0"});  // the signal meets a step
    Launched launched(dir, "train", words, 2);
    expect_200_steps(launched);
    launched.expect_ranks();
    launched.signal(SIGTERM);
    EXPECT_EQ(launched.wait(), 0) << launched.err();
    EXPECT_CONTAINS(launched.out(), "SIGTERM: stopped after step ");
    const std::string said = launched.err();
    EXPECT_TRUE(said.starts_with("finishing step ") &&
                said.ends_with(", then saving; again: quit without saving\n"))
        << said;
  }
  int64_t step = load_model(dir / "run/latest.h5", "cpu")->state.step;
  EXPECT_GE(step, 200);
  for (const int ranks : {4, 1}) {
    std::vector<std::string> again = endless();
    again.insert(again.end(), {"--resume", "--max-steps", str(step + 3)});
    Launched launched(dir, "train", again, ranks);
    EXPECT_EQ(launched.wait(), 0) << launched.err();
    EXPECT_CONTAINS(launched.out(), str("resumed at step ", step));
    step += 3;
    EXPECT_EQ(load_model(dir / "run/latest.h5", "cpu")->state.step, step);
  }
}

TEST_F(RanksFailureTest, ASecondSignalEndsAtOnce) {
  Launched launched(dir, "train", endless(), 2);
  expect_200_steps(launched);
  launched.signal_rank(1, SIGSTOP);  // so that the first signal cannot end it
  launched.signal(SIGTERM);
  // else SIGINT comes first
  EXPECT_TRUE(eventually([&] { return !launched.has_waiting(SIGTERM); }));
  launched.signal(SIGINT);
  EXPECT_EQ(launched.wait(), 128 + SIGINT) << launched.err();
}

TEST_F(RanksFailureTest, NoRankOutlivesALauncherThatIsKilled) {
  Launched launched(dir, "train", endless(), 2);
  expect_200_steps(launched);
  launched.expect_ranks();
  launched.signal(SIGKILL);
  EXPECT_EQ(launched.wait(), 128 + SIGKILL);
}

TEST_F(RanksFailureTest, AFullDiskOnRankZeroEndsAll) {
  train(small_config(dir.path(), {"train.steps=3"}), {.out = dir / "run", .device = "cpu"});
  std::vector<std::string> more = arguments({"--resume", "--set", "train.steps=50"});
  const auto size = static_cast<int64_t>(fs::file_size(dir / "run/latest.h5"));
  Launched launched(dir, "train", more, 2, {.limit_bytes = size / 2});
  const std::string line = error_line(launched);
  EXPECT_CONTAINS(line, ".h5");
  EXPECT_EQ(load_model(dir / "run/latest.h5", "cpu")->state.step, 3);
}

TEST_F(RanksFailureTest, ATakenPortIsSaid) {
  const int port = free_port();
  const Descriptor listener = listen_on("127.0.0.1", port);
  Process zero(dir, "train", arguments(), {.environment = rank_environment(0, 2, port)});
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_CONTAINS(zero.err(), str(port));
  EXPECT_CONTAINS(zero.err(), "error: ");
}

TEST_F(RanksFailureTest, ConfigsThatDifferAreNamed) {
  write_file(dir / "broken.yaml", "model: {layers: many}\n");
  const std::string seeds = said_of(arguments({"--set", "seed=4"}));
  EXPECT_CONTAINS(seeds, "rank 1");
  EXPECT_CONTAINS(seeds, ") runs something else: '--set seed=4, seed: 4', rank 0 'seed: 3'\n");
  std::vector<std::string> broken = arguments();
  broken[1] = dir / "broken.yaml";
  EXPECT_CONTAINS(said_of(broken), "broken.yaml");
  EXPECT_FALSE(fs::exists(dir / "run/latest.h5"));
}

// The same program with another build ID, and with another library, as another build of the same
// sources may have.
TEST_F(RanksFailureTest, BuildsThatDifferAreNamed) {
  const std::string note("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);
  const auto with_another_id = [&](const std::string& path) {
    std::string object = read_file(path);
    const std::size_t id = object.find(note) + note.size();
    EXPECT_LT(id, object.size());
    for (std::size_t i = 0; i < 4; ++i) object[id + i] = '\x5a';
    fs::create_directory(dir / "folder");
    const std::string copy = dir / ("folder/" + fs::path(path).filename().string());
    write_file(copy, object);
    fs::permissions(copy, fs::perms::owner_all);
    return copy;
  };
  const auto expect_builds_differ = [](const std::string& text) {
    const std::size_t one = text.find("'build "), zero = text.find("'build ", one + 1);
    ASSERT_NE(zero, std::string::npos) << text;
    EXPECT_EQ(text.substr(one + 15, zero - one - 15), "', rank 0 ")
        << "the rest is the same: " << text;
    EXPECT_NE(text.substr(one, 15), text.substr(zero, 15));
  };
  expect_builds_differ(said_of(arguments(), with_another_id(str(WEFT_TEST_BIN, "/train"))));
  const std::string library = str(WEFT_TEST_BIN, "/../lib/libweft.so");
  if (!fs::exists(library)) return;  // all in one
  const std::string folder = fs::path(with_another_id(library)).parent_path();
  expect_builds_differ(said_of(arguments(), "train", {"LD_LIBRARY_PATH=" + folder}));
}

TEST_F(RanksFailureTest, ABatchThatCannotBeSharedOutIsOneLine) {
  Launched launched(dir, "train", arguments(), 3);
  EXPECT_CONTAINS(error_line_of(launched), "3 processes");
}
}  // namespace
}  // namespace weft
