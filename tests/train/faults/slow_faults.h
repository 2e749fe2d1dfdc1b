// SPDX-License-Identifier: MIT
// Every call of the system fails once, or is the last one of its process
// (tests/tools/fault_shim.c): a program goes on, or says so in one line with exit code 1; after a
// resume all bytes are those of an undisturbed run. Every WEFT_FAULT_EVERY-th of these faults is
// tried, every one if that is 1.
#pragma once

#include "src/files/hdf5.h"
#include "tests/train/training.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace weft {
using Words = std::vector<std::string>;

struct FailedCall {
  std::string at = {};  // the name of a call; "": none
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
    for (const auto& [call, counts] : tried_)
      text += str("  ", call, ' ', counts[0], '+', counts[1]);
    std::printf("faults, failed + killed:%s\n", text.c_str());
  }

  // Exit code, or 128 + signal; the error in err_.
  int run(const Words& words, const FailedCall& fault = {}, bool counts = false) {
    std::error_code none;
    std::filesystem::remove(dir / "calls", none);
    Words environment{"OMP_WAIT_POLICY=passive", "OMP_NUM_THREADS=1"};
    if (!fault.at.empty() || counts) {
      environment.insert(
          environment.end(),
          {"LD_PRELOAD=" WEFT_TEST_LIB "/libfault_shim.so", "WEFT_FAULT_LOG=" + (dir / "calls"),
           "WEFT_FAULT_AT=" + fault.at, "WEFT_FAULT_RANK=" + fault.rank});
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

  // "0.0.17 read": the calls of the process with this RANK, as the shim names them.
  Words calls_of(const Words& attempt, const std::string& rank) {
    EXPECT_EQ(run(attempt, {"", false, rank}, true), 0) << err_;
    std::istringstream in(read_file(dir / "calls"));
    Words calls;
    for (std::string line; std::getline(in, line);) calls.push_back(line);
    return calls;
  }

  // `attempt` with the fault, which happens once or, in a thread that another one ends, not at all.
  int run_with(const Words& attempt, const FailedCall& fault) {
    const auto began = std::chrono::steady_clock::now();
    const int code = run(attempt, fault);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const std::string call = std::filesystem::exists(dir / "calls") ? read_file(dir / "calls") : "";
    SCOPED_TRACE(
        str(attempt[0], " rank ", fault.rank, ": ", fault.kills ? "kills " : "", call, err_));
    EXPECT_LE(std::count(call.begin(), call.end(), '\n'), 1);
    const std::string kind =
        call.empty() ? "never" : call.substr(call.find(' ') + 1, call.size() - 2 - call.find(' '));
    ++tried_[kind][fault.kills];
    EXPECT_LT(took.count(), 60);
    if (code == 1) expect_one_line(kind);
    if (code != 0 && code != 1) {
      EXPECT_TRUE(fault.kills && code == 128 + SIGKILL) << "exit code " << code;
    }
    return code;
  }

  // Every `step`-th fault, between `before` and `after`; both may expect what they like.
  template <class Before, class After>
  void try_all(const Words& attempt, const std::string& rank, long step, Before before,
               After after) {
    before();
    const Words calls = calls_of(attempt, rank);
    ASSERT_GT(calls.size(), 20u) << "the shim saw too few calls";
    for (std::size_t k = step / 2; k < 2 * calls.size(); k += step) {
      const FailedCall fault{calls[k / 2].substr(0, calls[k / 2].find(' ')), k % 2 == 1, rank};
      SCOPED_TRACE(
          str(attempt[0], " rank ", rank, ": ", calls[k / 2], fault.kills ? " kills" : ""));
      before();
      after(run_with(attempt, fault), fault);
    }
  }

  void expect_one_line(const std::string& kind) const {
    std::istringstream lines(err_);
    int errors = 0;
    for (std::string line; std::getline(lines, line);) errors += line.starts_with("error: ");
    EXPECT_EQ(errors, kind == "write" && err_.empty() ? 0 : 1);
  }

  // What is in a run folder is whole.
  void expect_whole_files(const std::string& folder, bool killed) {
    if (!std::filesystem::exists(dir / folder)) return;
    for (const auto& entry : std::filesystem::directory_iterator(dir / folder)) {
      const std::string path = entry.path().string();
      if (path.ends_with(".h5")) {
        EXPECT_EQ(error_of([&] { Hdf5File::open(path); }), "");
      }
      if (!killed) {
        EXPECT_EQ(path.find(".tmp"), std::string::npos) << path;
      }
    }
  }

  void expect_finished_as(const std::string& whole) {
    const Words more = std::filesystem::exists(dir / "run/latest.h5") ? Words{"--resume"} : Words{};
    Words words = train_words("run", more);
    words.insert(words.end(), more_.begin(), more_.end());
    ASSERT_EQ(run(words), 0) << err_;
    for (const char* name : {"latest.h5", "best.h5", "step_00000002.h5", "step_00000004.h5"})
      EXPECT_TRUE(read_file(dir / ("run/" + std::string(name))) ==
                  read_file(dir / (whole + "/" + name)))
          << name;
    EXPECT_EQ(timeless_metrics(dir / "run/metrics.jsonl"),
              timeless_metrics(dir / (whole + "/metrics.jsonl")));
  }

  void try_training(const Words& attempt, const std::string& rank, long step,
                    const std::string& from) {
    try_all(
        attempt, rank, step,
        [&] {
          std::filesystem::remove_all(dir / "run");
          if (!from.empty()) std::filesystem::copy(dir / from, dir / "run");
        },
        [&](int code, const FailedCall& fault) {
          expect_whole_files("run", code != 1 || fault.kills);
          expect_finished_as("whole");
        });
  }

  // A program that writes `file` and stdout.
  void try_output(const Words& attempt, const std::string& file) {
    ASSERT_EQ(run(attempt), 0) << err_;
    const std::string out = out_, bytes = read_file(dir / file);
    try_all(
        attempt, "", every(),
        [&] {
          std::filesystem::remove(dir / file);
          for (const std::string& name : dir.names())  // of one that was killed
            if (name.ends_with(".tmp")) std::filesystem::remove(dir / name);
        },
        [&](int code, const FailedCall& fault) {
          if (code == 0) {
            EXPECT_EQ(out_, out);
          }
          if (code == 0 || std::filesystem::exists(dir / file)) {
            EXPECT_TRUE(read_file(dir / file) == bytes) << file;
          }
          for (const std::string& name : dir.names())
            EXPECT_TRUE(fault.kills || name.find(".tmp") == std::string::npos) << name;
        });
  }

  static long every() {
    const char* text = std::getenv("WEFT_FAULT_EVERY");
    return text ? std::atol(text) : 97;
  }

  TempDir dir;
  Words more_;  // options of all runs
  std::string out_, err_;
  std::map<std::string, std::array<int, 2>> tried_;
};
}  // namespace weft
