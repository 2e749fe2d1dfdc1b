// SPDX-License-Identifier: MIT
// What comes from outside while programs run: signals, a reader that leaves, too little memory; and
// the line that says how a stopped run goes on.
#include "tests/train/interruptions.h"

#include "src/files/hdf5.h"
#include "train/program/stop_signal.h"

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {
// The shell says that the terminal is gone, and then the kernel.
TEST_F(InterruptionsTest, AHangUpSavesAsSigtermDoes) { a_hang_up_saves(""); }

TEST(StopSignal, ASecondOneAtOnceIsAnEcho) {
  const StopSignal signal(true);
  raise(SIGTERM);
  raise(SIGTERM);
  EXPECT_STREQ(StopSignal::received(), "SIGTERM");
  const auto later = [] {
    usleep(300000);
    raise(SIGTERM);
  };
  EXPECT_EXIT(later(), testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(raise(SIGINT), testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(StopSignal, SaysAtOnceWhatItFinishesAndWhatIsKept) {
  const auto signals = [](StopSignal::Work work, const std::vector<int>& numbers, bool says) {
    const StopSignal signal(true, says);
    StopSignal::at(work, 12);
    for (const int number : numbers) raise(number), usleep(300000);
    _exit(9);
  };
  const auto said = [&](StopSignal::Work work, const std::vector<int>& numbers, int code,
                        const std::string& text, bool says = true) {
    EXPECT_EXIT(signals(work, numbers, says), testing::ExitedWithCode(code), "^" + text + "$");
  };
  const std::string end = ", then saving; again: quit without saving\n";
  StopSignal::set_kept("");
  said(StopSignal::Work::step, {SIGINT}, 9, "finishing step 12" + end);
  said(StopSignal::Work::validation, {SIGTERM}, 9, "finishing the validation of step 12" + end);
  said(StopSignal::Work::saving, {SIGINT}, 9,
       "finishing the checkpoint of step 12, then stopping; again: quit without it\n");
  said(StopSignal::Work::step, {SIGHUP}, 9, "");
  said(StopSignal::Work::step, {SIGINT, SIGALRM}, 9,
       "finishing step 12" + end +
           "giving up step 12, which takes longer than 2 s; saving what was done before\n");
  said(StopSignal::Work::saving, {SIGHUP, SIGALRM}, 9, "");
  const std::vector<int> twice = {SIGINT, SIGINT};
  said(StopSignal::Work::step, twice, 128 + SIGINT,
       "finishing step 12" + end + "quit without saving; nothing was saved\n");
  StopSignal::set_kept("run/latest.h5 of step 10");
  EXPECT_EQ(StopSignal::kept(), "kept: run/latest.h5 of step 10");
  said(StopSignal::Work::step, twice, 128 + SIGINT,
       "finishing step 12" + end + "quit without saving; kept: run/latest.h5 of step 10\n");
  said(StopSignal::Work::step, twice, 128 + SIGINT, "", false);
}

TEST_F(InterruptionsTest, ASecondCtrlCSaysWhatWasKept) { a_second_says_what_was_kept(""); }

TEST(StopSignal, ItsEndBringsBackWhatWasBefore) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction before {
    }, during{}, after{};

    sigaction(number, nullptr, &before);
    {
      const StopSignal signal(true);
      sigaction(number, nullptr, &during);
    }
    sigaction(number, nullptr, &after);
    EXPECT_NE(during.sa_handler, before.sa_handler) << number;
    EXPECT_EQ(after.sa_handler, before.sa_handler) << number;
  }
}

// timeout(1) signals the program, and then its whole group.
TEST_F(InterruptionsTest, ALimitOfTheShellSaves) { a_limit_saves(""); }

TEST_F(InterruptionsTest, NohupGoesOn) { nohup_goes_on(""); }

TEST_F(InterruptionsTest, ALogThatNobodyReadsIsNotTheEnd) {
  an_unread_log_is_not_the_end("");
  // Nor where nobody can be told.
  EXPECT_EQ(shell("set -o pipefail; train --config small.yaml --device cpu --out run 2>&1 | true"),
            0);
  EXPECT_EQ(saved_step(), 20);
}

// The line, pasted into a shell, goes on to the bits of a run that was not stopped.
TEST_F(InterruptionsTest, TheLineThatGoesOnDoes) {
  EXPECT_EQ(shell("train --config small.yaml --device cpu --out whole --batch 2"), 0) << err_;
  EXPECT_EQ(shell("train --config small.yaml --device cpu --out \"a 'b' \\$c; d\" --batch 2 "
                  "--max-minutes 500 --max-steps 7"),
            0)
      << err_;
  EXPECT_EQ(pasted(), "train --resume 'a '\\''b'\\'' $c; d' --max-minutes 500");
  EXPECT_EQ(shell(pasted()), 0) << err_;
  EXPECT_TRUE(read_file(dir / "whole/latest.h5") == read_file(dir / "a 'b' $c; d/latest.h5"));
  // A limit that was not reached stays.
  EXPECT_EQ(shell(running(endless + " --max-steps 900000") + "kill -TERM $p; wait $p"), 0) << err_;
  EXPECT_EQ(pasted(), "train --resume run --max-steps 900000");
}

TEST_F(InterruptionsTest, FoldersThatCannotBe) {
  const std::string train = "train --config small.yaml --device cpu --out ";
  EXPECT_CONTAINS(refused(train + "''"), "--out: expected the name of a folder, got an empty one");
  for (const std::size_t length : {300, 5000})
    EXPECT_CONTAINS(refused(train + std::string(length, 'x')),
                    "--out: no folder: File name too long");
  EXPECT_CONTAINS(refused(train + "small.yaml/run"), "--out: no folder: Not a directory");
  EXPECT_CONTAINS(refused(train + "small.yaml"), "small.yaml is not a folder");
  EXPECT_CONTAINS(
      refused(train + "/proc/foo"),
      "cannot make the folder /proc/foo: /proc takes no new names; choose a folder on a "
      "disk");
  EXPECT_CONTAINS(refused(train + "/proc/foo/run"),
                  "cannot make the folder /proc/foo/run: /proc takes no new names");
}

// Every program ends by itself, well or with one line, however little memory it may have: from less
// than its libraries need (CUDA's: gigabytes) to enough. Each of a GEMM's threads asks for 128 MiB
// of addresses.
TEST_F(InterruptionsTest, TooLittleMemoryIsSaid) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer takes terabytes of addresses";
#endif
  train_two_steps();
  int least = 50000, failed = 0, out_of_memory = 0;
  for (; shell(str("ulimit -v ", least, "; train --help > /dev/null")) != 0; least += 50000)
    ASSERT_LT(least, 16000000) << err_;
  const auto expect_end = [&](int kilobytes, const std::string& line) {
    SCOPED_TRACE(str(line, " with ulimit -v ", kilobytes));
    const int code =
        shell(str("ulimit -c 0; ulimit -v ", kilobytes, "; OMP_NUM_THREADS=2 timeout 60 ", line));
    EXPECT_TRUE(code == 0 || code == 1 || code == 127) << code << err_;
    if (code == 0) return;
    ++failed;
    const std::size_t at = err_.find("error");  // behind lines that tell which weights are taken
    ASSERT_NE(at, std::string::npos) << err_;
    EXPECT_EQ(err_.find('\n', at), err_.size() - 1) << err_;
    if (code == 1) ++out_of_memory;
  };
  const std::string of_run = " --checkpoint run/latest.h5 --device cpu";
  for (int kilobytes = least - 50000; kilobytes <= least + 250000; kilobytes += 50000) {
    expect_end(
        kilobytes,
        "train --config small.yaml --device cpu --max-steps 1 --set data.path=corpus.h5 --out o" +
            std::to_string(kilobytes));
    expect_end(kilobytes, "evaluate" + of_run + " --batch 8 > /dev/null");
    expect_end(kilobytes, "sample" + of_run + " --length 3 > /dev/null");
  }
  EXPECT_GT(failed, 3);
  EXPECT_GT(out_of_memory, 0);
}
}  // namespace
}  // namespace weft
