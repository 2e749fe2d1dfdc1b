// SPDX-License-Identifier: MIT
// Training that is stopped from outside.
#pragma once

#include "src/files/hdf5.h"
#include "tests/train/shell_test.h"

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
class InterruptionsTest : public ShellTest {
 protected:
  // Starts `command` in the background, `endless` training, and waits until it has logged two
  // lines.
  static std::string running(const std::string& command) {
    return command +
           " & p=$!; until [ \"$(cat run/metrics.jsonl 2>/dev/null | wc -l)\" -ge 2 ] || ! kill -0 "
           "$p "
           "2>/dev/null; do sleep 0.02; done; ";
  }

  int64_t saved_step() const {
    return Hdf5File::open(dir / "run/latest.h5").int_attribute("step").value_or(-1);
  }

  std::vector<double> steps() const { return metric(dir / "run/metrics.jsonl", "step"); }

  const std::string endless =
      "train --config small.yaml --device cpu --out run --set train.steps=1000000 --set "
      "train.save_every=0"
      " --set train.eval_every=0";

  // The command that the last program said goes on.
  std::string pasted() const {
    const std::size_t at = out_.find("go on with: ");
    EXPECT_NE(at, std::string::npos) << out_ << err_;
    return out_.substr(at + 12, out_.find('\n', at) - at - 12);
  }

  // What `train` does with `more` options.

  void a_hang_up_saves(const std::string& more) {
    EXPECT_EQ(shell(running(endless + more) + "kill -HUP $p; kill -HUP $p; wait $p"), 0) << err_;
    EXPECT_CONTAINS(out_, "SIGHUP: stopped after step ");
    EXPECT_GE(saved_step(), 4);
  }

  // Steps of seconds, from the fourth on. The shell starts what is in the background without
  // SIGINT.
  void a_second_says_what_was_kept(const std::string& more) {
    write_corpus(dir / "long.h5", 400000, 32);
    const std::string slow =
        "train --config small.yaml --device cpu --out run --set data.path=long.h5 --set "
        "model.context=32768 --set 'model.position_axes=[256, 128]' --set "
        "'model.attention=[{kind: all}]' --set model.layers=4 --set train.batch=2 --set "
        "train.accumulation=1 --set train.log_every=1 --set train.eval_every=0 --set "
        "train.save_every=2 --set 'train.context_schedule=[[0, 16], [3, 32768]]'";
    EXPECT_EQ(shell(running(slow + more) +
                    "until [ \"$(cat run/metrics.jsonl | wc -l)\" -ge 3 ]; do sleep 0.02; done; "
                    "sleep 1; kill -TERM $p; sleep 0.4; kill -TERM $p; wait $p"),
              128 + SIGTERM)
        << out_ << err_;
    EXPECT_EQ(err_,
              "finishing step 4, then saving; again: quit without saving\n"
              "quit without saving; kept: run/latest.h5 of step 2\n");
    EXPECT_EQ(saved_step(), 2);
  }

  void a_limit_saves(const std::string& more) {
    for (const char* seconds :
         {"4", "16", "64"}) {  // on a busy machine the first step takes longer
      EXPECT_EQ(shell(std::string("rm -rf run; timeout ") + seconds + " " + endless + more), 124)
          << err_;
      if (std::filesystem::exists(dir / "run/latest.h5")) break;
    }
    EXPECT_CONTAINS(out_, "SIGTERM: stopped after step ");
    EXPECT_GE(saved_step(), 1);
  }

  void nohup_goes_on(const std::string& more) {
    EXPECT_EQ(
        shell("trap '' HUP; " + running(endless + more) +
              "kill -HUP $p; n=$(cat run/metrics.jsonl | wc -l); until [ $(cat run/metrics.jsonl | "
              "wc -l) -gt $((n + 2)) ] || ! kill -0 $p; do sleep 0.02; done; kill -TERM $p; "
              "wait $p"),
        0)
        << err_;
    EXPECT_CONTAINS(out_, "SIGTERM: stopped after step ");
  }

  void an_unread_log_is_not_the_end(const std::string& more) {
    const std::string train = "train --config small.yaml --device cpu --out run" + more;
    EXPECT_EQ(shell("set -o pipefail; " + train + " | head -n 1 > /dev/null"), 0) << err_;
    EXPECT_EQ(saved_step(), 20);
    EXPECT_EQ(steps().back(), 20);
    EXPECT_EQ(err_,
              "warning: the output goes nowhere from here on (Broken pipe); the work goes on\n");
    std::filesystem::remove_all(dir / "run");
  }
};
}  // namespace weft
