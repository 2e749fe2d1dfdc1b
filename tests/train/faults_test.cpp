// SPDX-License-Identifier: MIT
// Every call of the system fails once, or is the last one of its process (tests/tools/fault_shim.c): a
// program goes on, or says so in one line with exit code 1; after a resume all bytes are those of an
// undisturbed run. Every WEFT_FAULT_EVERY-th call is tried.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "src/files/hdf5.h"
#include "tests/train/training.h"

namespace fs = std::filesystem;

namespace weft {
namespace {

using Words = std::vector<std::string>;

struct Fault {
  long at = 0;  // 0: none
  bool kills = false;
  std::string rank = {};
};

class SlowFaults : public testing::Test {
 protected:
  SlowFaults() {
    write_corpus(dir / "corpus.h5", 3000, 32);
    write_file(dir / "small.yaml", small_yaml(dir.path()));
  }
  ~SlowFaults() override {
    std::string text;
    for (const auto& [name, count] : tried_) text += str(name, " ", count, "  ");
    std::printf("faults: %s\n", text.c_str());
  }
  // Exit code, or 128 + signal; the error in err_.
  int run(const Words& words, const Fault& fault = {}, bool counts = false) {
    std::error_code none;
    fs::remove(dir / "calls", none);
    Words environment{"OMP_WAIT_POLICY=passive", "OMP_NUM_THREADS=1"};
    if (fault.at > 0 || counts) {
      environment.insert(
          environment.end(),
          {"LD_PRELOAD=" WEFT_TEST_LIB "/libfault_shim.so", "WEFT_FAULT_LOG=" + (dir / "calls"),
           str("WEFT_FAULT_AT=", fault.at), "WEFT_FAULT_RANK=" + fault.rank});
      if (fault.kills) environment.push_back("WEFT_FAULT_KILL=1");
    }
    Process process(dir, words[0], {words.begin() + 1, words.end()},
                    {.environment = environment, .name = "it"});
    const int code = process.wait();
    out_ = process.out(), err_ = process.err();
    return code;
  }
  Words train_words(const std::string& out, const Words& more = {}) const {
    Words words{"train",
                "--config",
                dir / "small.yaml",
                "--device",
                "cpu",
                "--out",
                dir / out,
                "--set",
                "train.steps=4",
                "--set",
                "train.log_every=1",
                "--set",
                "train.eval_every=2",
                "--set",
                "train.save_every=2",
                "--set",
                "train.eval_tokens=128"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words on_checkpoint(const char* program, const Words& more) const {
    Words words{program, "--checkpoint", dir / "whole/latest.h5", "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // `attempt` with each fault in turn, between `before` and `after`; both may expect what they like.
  template <class Before, class After>
  void try_all(const Words& attempt, const std::string& rank, Before before, After after) {
    before();
    ASSERT_EQ(run(attempt, {0, false, rank}, true), 0) << err_;
    const std::string calls = read_file(dir / "calls");
    const long count = std::count(calls.begin(), calls.end(), '\n');
    ASSERT_GT(count, 20) << "the shim saw too few calls";
    const char* every = std::getenv("WEFT_FAULT_EVERY");
    const long step = every ? std::atol(every) : 97;
    for (long k = 1 + step / 2; k <= 2 * count; k += step) {
      const Fault fault{(k + 1) / 2, k % 2 == 0, rank};
      before();
      const int code = run(attempt, fault);
      const std::string name = fs::exists(dir / "calls") ? read_file(dir / "calls") : "none\n";
      SCOPED_TRACE(str(attempt[0], " rank ", rank, ": call ", fault.at, ", ", fault.kills ? "kills " : "",
                       name, err_));
      // A child that reads a file counts on from its parent: some numbers are of no call, some of two.
      if (const std::string first = name.substr(0, name.find('\n')); !first.empty() && first != "none")
        ++tried_[first];
      if (code == 1) expect_one_line(name);
      if (code != 0 && code != 1) {
        EXPECT_TRUE(fault.kills && code == 128 + SIGKILL) << "exit code " << code;
      }
      after(code, fault);
    }
  }
  void expect_one_line(const std::string& call) const {
    std::istringstream lines(err_);
    int errors = 0;
    for (std::string line; std::getline(lines, line);) errors += line.starts_with("error: ");
    const auto failed = std::count(call.begin(), call.end(), '\n');
    if (failed > 1 && call.find("write\n") != std::string::npos) {  // two failed: what a rank said went lost
      EXPECT_LE(errors, 2);
    } else {
      EXPECT_EQ(errors, call == "write\n" && err_.empty() ? 0 : 1);
    }
  }
  // What is in a run folder is whole.
  void expect_whole_files(const std::string& folder, bool killed) {
    if (!fs::exists(dir / folder)) return;
    for (const auto& entry : fs::directory_iterator(dir / folder)) {
      const std::string path = entry.path().string();
      if (path.ends_with(".h5")) {
        EXPECT_EQ(error_of([&] { Hdf5File::open(path); }), "");
      }
      if (!killed) { EXPECT_EQ(path.find(".tmp"), std::string::npos) << path; }
    }
  }
  void expect_finished_as(const std::string& whole) {
    const Words more = fs::exists(dir / "run/latest.h5") ? Words{"--resume"} : Words{};
    Words words = train_words("run", more);
    words.insert(words.end(), gpus_.begin(), gpus_.end());
    ASSERT_EQ(run(words), 0) << err_;
    for (const char* name : {"latest.h5", "best.h5", "step_00000002.h5", "step_00000004.h5"})
      EXPECT_TRUE(read_file(dir / ("run/" + std::string(name))) == read_file(dir / (whole + "/" + name)))
          << name;
    EXPECT_EQ(timeless_metrics(dir / "run/metrics.jsonl"),
              timeless_metrics(dir / (whole + "/metrics.jsonl")));
  }
  void try_training(const Words& attempt, const std::string& rank, const std::string& from) {
    try_all(
        attempt, rank,
        [&] {
          fs::remove_all(dir / "run");
          if (!from.empty()) fs::copy(dir / from, dir / "run");
        },
        [&](int code, const Fault& fault) {
          expect_whole_files("run", code != 1 || fault.kills);
          expect_finished_as("whole");
        });
  }
  // A program that writes `file` and stdout.
  void try_output(const Words& attempt, const std::string& file) {
    ASSERT_EQ(run(attempt), 0) << err_;
    const std::string out = out_, bytes = read_file(dir / file);
    try_all(
        attempt, "", [&] { fs::remove(dir / file); },
        [&](int code, const Fault& fault) {
          if (code == 0) { EXPECT_EQ(out_, out); }
          if (code == 0 || fs::exists(dir / file)) { EXPECT_TRUE(read_file(dir / file) == bytes) << file; }
          for (const std::string& name : dir.names())
            EXPECT_TRUE(fault.kills || name.find(".tmp") == std::string::npos) << name;
        });
  }
  TempDir dir;
  Words gpus_;
  std::string out_, err_;
  std::map<std::string, int> tried_;
};

TEST_F(SlowFaults, Train) {
  ASSERT_EQ(run(train_words("whole")), 0) << err_;
  try_training(train_words("run"), "", "");
}

TEST_F(SlowFaults, Resume) {
  ASSERT_EQ(run(train_words("whole")), 0) << err_;
  ASSERT_EQ(run(train_words("half", {"--max-steps", "1"})), 0) << err_;
  try_training(train_words("run", {"--resume"}), "", "half");
}

TEST_F(SlowFaults, Ranks) {
  if (!std::getenv("WEFT_FAULT_EVERY"))
    GTEST_SKIP() << "ranks wait for each other for minutes: tests/tools/attack.sh runs it";
  gpus_ = {"--gpus", "2"};
  ASSERT_EQ(run(train_words("whole", gpus_)), 0) << err_;
  for (const char* rank : {"0", "1", ""}) try_training(train_words("run", gpus_), rank, "");
}

TEST_F(SlowFaults, EvaluateAndSample) {
  ASSERT_EQ(run(train_words("whole")), 0) << err_;
  try_output(on_checkpoint("evaluate", {"--losses", dir / "l.h5"}), "l.h5");
  try_output(on_checkpoint("sample", {"--seed", "1", "--length", "5", "--out", dir / "s.txt"}), "s.txt");
}

}  // namespace
}  // namespace weft
