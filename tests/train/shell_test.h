// SPDX-License-Identifier: MIT
// Programs as a shell starts them, in a folder with a corpus and a config.
#pragma once

#include "tests/train/training.h"

#include <algorithm>
#include <string>

namespace weft {
class ShellTest : public testing::Test {
 protected:
  ShellTest() {
    write_corpus(dir / "corpus.h5", 6000, 32);
    write_file(dir / "small.yaml", small_yaml(dir.path()));
  }

  void train_two_steps() {
    train(small_config(dir.path(), {"train.steps=2", "train.eval_every=0"}),
          {.out = dir / "run", .device = "cpu"});
  }

  // A line of the shell, in which programs of weft need no path. Returns its exit code.
  int shell(const std::string& line) {
    Process process(dir, "/bin/bash",
                    {"-c", "PATH=" WEFT_TEST_BIN ":$PATH; cd " + dir.path() + "; " + line},
                    {.name = "shell"});
    const int code = process.wait();
    out_ = process.out(), err_ = process.err();
    return code;
  }

  // The one line of what must fail.
  std::string refused(const std::string& line) {
    EXPECT_EQ(shell(line), 1) << line << out_ << err_;
    EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
    EXPECT_LT(err_.size(), 500u) << err_;
    return err_;
  }

  // The line must fail for this reason, and `file` must stay as it was.
  void expect_kept(const std::string& line, const std::string& file,
                   const std::string& reason = "is both read and written") {
    const std::string before = read_file(dir / file);
    EXPECT_CONTAINS(refused(line), reason);
    EXPECT_TRUE(read_file(dir / file) == before) << line;
  }

  TempDir dir;
  std::string out_, err_;
};
}  // namespace weft
