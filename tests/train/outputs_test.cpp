// SPDX-License-Identifier: MIT
// What the programs write to and read from that is no plain file, and what they say of numbers that
// cannot be.
#include "tests/train/shell_test.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

namespace fs = std::filesystem;

namespace weft {
namespace {
using OutputsTest = ShellTest;

TEST_F(OutputsTest, AFullOrClosedStdoutIsAnError) {
  train_two_steps();
  for (const char* target : {"/dev/full", "&-"}) {
    EXPECT_CONTAINS(
        refused(str("evaluate --checkpoint run/latest.h5 --device cpu --losses l.h5 2> e >", target,
                    "; code=$?; tail -n 1 e >&2; exit $code")),
        "error: stdout: not all output could be written");
    EXPECT_CONTAINS(refused(str("train --help >", target)),
                    "stdout: not all output could be written");
    EXPECT_CONTAINS(refused(str("prepare text small.yaml --out t.h5 >", target)),
                    "stdout: not all output");
  }
  // With nowhere to speak, files still get their own bytes and nothing else.
  EXPECT_EQ(shell("sample --checkpoint run/latest.h5 --device cpu --length 5 --out t <&- >&- 2>&-"),
            0);
  EXPECT_EQ(read_file(dir / "t").size(), 5u);
  EXPECT_EQ(
      shell("sample --checkpoint run/latest.h5 --device cpu --length 5 2>/dev/null | head -c 1"),
      0);
}

TEST_F(OutputsTest, DevicesAndLinksAreNotReplaced) {
  train_two_steps();
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_symlink("target", dir / "link");
  const std::string on_run = " --checkpoint run/latest.h5 --device cpu ";
  EXPECT_EQ(shell("sample" + on_run + "--length 5 --out link"), 0) << err_;
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(read_file(dir / "target").size(), 5u);
  EXPECT_EQ(shell("sample" + on_run + "--length 5 --out pipe & cat pipe | wc -c"), 0) << err_;
  EXPECT_EQ(out_, "5\n");
  for (const std::string& line :
       {"evaluate" + on_run + "--losses pipe", std::string("prepare text small.yaml --out pipe")})
    EXPECT_CONTAINS(refused(line),
                    "pipe: is a device or pipe, expected the name of a regular file");
  EXPECT_TRUE(fs::is_fifo(dir / "pipe"));
  EXPECT_CONTAINS(refused("sample" + on_run + "--length 5 --out ''"),
                  "--out: expected the name of a file");
  EXPECT_CONTAINS(refused("sample" + on_run + "--length 5 --out ."), "--out: .: is a folder");
  EXPECT_CONTAINS(refused("prepare text small.yaml --out " + std::string(3000, 'x')),
                  "File name too long");
}

TEST_F(OutputsTest, InputsThatAreNoFiles) {
  train_two_steps();
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_directory(dir / "images");
  const std::string sample =
      "sample --checkpoint run/latest.h5 --device cpu --length 5 --seed 1 --prompt-file ";
  for (const char* line : {"train --config pipe", "train --config /dev/zero",
                           "prepare text /dev/zero --out o.h5", "prepare text pipe --out o.h5"})
    EXPECT_CONTAINS(refused(str("timeout 20 ", line)), "expected a file");
  EXPECT_CONTAINS(refused("timeout 20 " + sample + "pipe"),
                  "is a device or named pipe, expected a file");
  EXPECT_CONTAINS(refused(sample + "images"), "images: is a folder, expected a file");
  EXPECT_CONTAINS(refused("cat /dev/zero | " + sample + "/dev/stdin"),
                  "has more than 67108864 bytes");
  EXPECT_CONTAINS(refused("train --config <(cat /dev/zero)"), "has more than 1048576 bytes");
  EXPECT_EQ(shell(sample + "<(printf '\\003')"), 0) << err_;
  const std::string expected = out_;
  EXPECT_EQ(shell("printf '\\003' | " + sample + "/dev/stdin"), 0) << err_;
  EXPECT_EQ(out_, expected);
  EXPECT_EQ(shell("train --device cpu --max-steps 1 --out piped --config <(cat small.yaml)"), 0)
      << err_;
  EXPECT_EQ(shell("cat small.yaml | prepare text /dev/stdin small.yaml --out o.h5"), 0) << err_;
}

TEST_F(OutputsTest, NumbersThatCannotBe) {
  const std::string sample = "sample --checkpoint x --device cpu ";
  EXPECT_CONTAINS(refused(sample + "--length 0"),
                  "--length: expected a number of at least 1, got 0");
  EXPECT_CONTAINS(refused("selftest --minutes 0"),
                  "--minutes: expected a number of more than 0, got 0");
  EXPECT_CONTAINS(refused("selftest --minutes nan"),
                  "--minutes: expected a number of more than 0, got nan");
  for (const char* seed : {"-1", "18446744073709551616", "1.5"})
    EXPECT_CONTAINS(
        refused(sample + "--length 5 --seed " + seed),
        str("--seed: expected a whole number from 0 to 18446744073709551615, got ", seed));
  EXPECT_EQ(shell("prepare copy --seed 18446744073709551615 --length 1000 --out o.h5"), 0) << err_;
  EXPECT_CONTAINS(refused("train --config small.yaml --set model.dropout=0.999999"),
                  "--set model.dropout: expected less than 0.99999");
  for (const char* option : {"--length", "--count", "--batch", "--top-k"})
    EXPECT_CONTAINS(refused(str(sample, option, " 99999999999999999999")),
                    str(option, ": expected a number of at most 9223372036854775807, got 9999999"));
  EXPECT_CONTAINS(refused("train --config small.yaml --set train.reco=block"),
                  "did you mean train.recompute?");
}

// No program replaces a file that it reads, or a file of the run that it reads.
using OverwritesTest = ShellTest;

TEST_F(OverwritesTest, EvaluateKeepsWhatItReads) {
  train_two_steps();
  fs::create_hard_link(dir / "corpus.h5", dir / "other_name.h5");
  const std::string evaluate = "evaluate run/latest.h5 --device cpu --losses ";
  expect_kept(evaluate + "corpus.h5", "corpus.h5");
  expect_kept(evaluate + "other_name.h5", "corpus.h5");
  expect_kept(evaluate + "run/latest.h5", "run/latest.h5");
  expect_kept(evaluate + "run/metrics.jsonl", "run/metrics.jsonl", "is a file of the run");
  write_file(dir / "run/about.txt", "of the report");
  expect_kept(evaluate + "run/about.txt", "run/about.txt", "is a file of the run");
  for (const char* name : {"run/losses.h5", "run/losses.h5", "run/step_2_losses.h5",
                           "run/step_2_losses.h5", "run/step_0000000x.h5"})
    EXPECT_EQ(shell(evaluate + name), 0) << err_;
}

TEST_F(OverwritesTest, SampleKeepsWhatItReads) {
  train_two_steps();
  write_file(dir / "text", "\1\2\3");
  const std::string sample = "sample run/latest.h5 --device cpu --length 5 ";
  expect_kept(sample + "--out run/latest.h5", "run/latest.h5");
  expect_kept(sample + "--out run/config.yaml", "run/config.yaml", "is a file of the run");
  expect_kept(sample + "--prompt-file text --out text", "text");
  fs::create_symlink("text", dir / "link");
  expect_kept(sample + "--prompt-file text --out ./link", "text");
  EXPECT_EQ(shell(sample + "--prompt-file text --out /dev/null"), 0) << err_;
}

TEST_F(OverwritesTest, PrepareKeepsWhatItReads) {
  write_file(dir / "a.txt", "some text that is long enough for three splits");
  expect_kept("prepare text a.txt --out a.txt", "a.txt");
  expect_kept("prepare enwik8 --allow-prefix --from a.txt --out a.txt", "a.txt");
  fs::create_directory(dir / "clone");
  write_file(dir / "clone/a.txt", "a novel");
  expect_kept("prepare novels --from clone --out clone/a.txt", "clone/a.txt");
}

TEST_F(OverwritesTest, MinimalKeepsItsText) {
  write_file(dir / "a.txt", std::string(1000, 'a'));
  expect_kept("minimal a.txt --steps 1 --save ./a.txt", "a.txt");
  EXPECT_CONTAINS(refused("minimal run"), "run: cannot be read");
  EXPECT_CONTAINS(refused("minimal " + std::string(300, 'x')), "xxx: cannot be read");
  fs::create_directory(dir / "folder");
  EXPECT_CONTAINS(refused("minimal folder"), "folder: is a folder, expected a file");
}
}  // namespace
}  // namespace weft
