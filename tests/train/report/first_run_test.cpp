// SPDX-License-Identifier: MIT
// The first hour: train/quickstart.sh and the commands of README.md, in a copy of the repository
// whose `train` takes four steps. Nothing is built: cmake is a stand-in.
#include "tests/train/training.h"

#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <utility>

namespace fs = std::filesystem;

namespace weft {
namespace {
class SlowFirstRun : public testing::Test {
 protected:
  SlowFirstRun() {
    const fs::path source = WEFT_TEST_SOURCE;
    for (const char* folder : {".ci", "train/boards", "build/cpu/bin", "tools"})
      fs::create_directories(clone(folder));
    for (const char* file : {".ci/packages.sh", "train/quickstart.sh", "train/boards/board.sh"})
      fs::copy_file(source / file, clone(file));
    for (const char* folder : {"configs", "data"})
      fs::create_directory_symlink(source / folder, clone(folder));
    for (const char* program : {"evaluate", "sample", "inspect", "prepare", "report"})
      fs::create_symlink(fs::path(WEFT_TEST_BIN) / program,
                         clone(std::string("build/cpu/bin/") + program));
    script("build/cpu/bin/train", "exec " WEFT_TEST_BIN
                                  "/train \"$@\" --set train.steps=4 --set train.eval_every=2 "
                                  "--set train.eval_tokens=2048 --device cpu");
    script("tools/dpkg-query", "echo install ok installed");
    script("tools/cmake",
           "echo '[1/2] Building a.cpp'; [ ! -e broken ] || { echo 'a.cpp:7: no'; exit 1; }");
    fs::copy_file(source / "data/doyle.txt", clone("my_corpus.txt"));
  }

  std::string clone(const std::string& path) const { return dir / ("clone/" + path); }

  // A line of the shell in the copy; its exit code.
  int shell(const std::string& line) {
    Process process(
        dir, "/bin/bash",
        {"-c", "set -euo pipefail; cd " + clone("") + "; PATH=$PWD/tools:$PATH; " + line},
        {.environment = {"WEFT_PRESET=cpu"}, .name = "shell"});
    const int code = process.wait();
    out_ = process.out(), err_ = process.err();
    return code;
  }

  TempDir dir;
  std::string out_, err_;

 private:
  void script(const std::string& path, const std::string& text) const {
    write_file(clone(path), "#!/bin/bash\n" + text + "\n");
    fs::permissions(clone(path), fs::perms::owner_all);
  }
};

// What follows a line of this text, up to an empty line or a fence.
std::string lines_behind(const std::string& text, const std::string& line) {
  const std::size_t begin = text.find('\n', text.find(line)) + 1,
                    end = std::min(text.find("\n\n", begin), text.find("\n```", begin));
  return text.substr(begin, end - begin);
}

TEST_F(SlowFirstRun, AQuickStartLeavesEarlierRunsAsTheyAre) {
  ASSERT_EQ(shell("bash train/quickstart.sh"), 0) << out_ << err_;
  EXPECT_CONTAINS(out_, "the run is in runs/tiny\nopen runs/tiny/report.html in a browser");
  EXPECT_CONTAINS(out_, "\n[Holmes ]");
  EXPECT_EQ(out_.find("Building a.cpp"), std::string::npos) << "lines of the compiler";
  EXPECT_CONTAINS(read_file(clone("build/cpu/compile.log")), "[1/2] Building a.cpp");
  write_file(clone("runs/tiny/mine"), "a note");
  const std::string before = read_file(clone("runs/tiny/latest.h5"));
  ASSERT_EQ(shell("bash train/quickstart.sh"), 0) << out_ << err_;
  EXPECT_CONTAINS(out_, "runs/tiny stays as it is: this run goes to runs/tiny_2\n");
  EXPECT_CONTAINS(out_, "the run is in runs/tiny_2\nopen runs/tiny_2/report.html in a browser");
  EXPECT_TRUE(fs::exists(clone("runs/tiny_2/report.html")));
  EXPECT_EQ(read_file(clone("runs/tiny/mine")), "a note");
  EXPECT_TRUE(read_file(clone("runs/tiny/latest.h5")) == before);

  const std::string next = lines_behind(out_, "type next:");
  EXPECT_CONTAINS(next, "sample --checkpoint runs/tiny_2/best.h5");
  EXPECT_EQ(shell(next.substr(0, next.find("README.md"))), 0) << next << err_;
  EXPECT_TRUE(fs::exists(clone("runs/my/best.h5")));
}

TEST_F(SlowFirstRun, ABuildThatFailsSaysWhereItsLogIs) {
  EXPECT_EQ(shell("touch broken; bash train/quickstart.sh"), 1);
  EXPECT_CONTAINS(err_,
                  "the last lines of build/cpu/configure.log, which has all:\n[1/2] Building");
  EXPECT_CONTAINS(err_, "a.cpp:7: no\n");
  EXPECT_FALSE(fs::exists(clone("runs")));
}

// Whoever has the packages, and has built nothing yet, begins with the notebook.
TEST_F(SlowFirstRun, TheNotebookBuildsInAFreshClone) {
  const fs::path source = WEFT_TEST_SOURCE;
  fs::copy_file(source / "train/notebooks/quickstart.ipynb", clone("quickstart.ipynb"));
  fs::copy_file(source / "CMakePresets.json", clone("CMakePresets.json"));
  ASSERT_EQ(shell("${WEFT_PYTHON:-python3} -c 'import json\n"
                  "cells = json.load(open(\"quickstart.ipynb\"))[\"cells\"]\n"
                  "exec(\"\".join(cells[1][\"source\"]))'"),
            0)
      << err_;
  EXPECT_CONTAINS(out_, "built with the preset cpu\n");
  EXPECT_CONTAINS(read_file(clone("build/cpu/compile.log")), "[1/2] Building a.cpp");
}

// The second start draws the table again and trains nothing; rows of another commit are refused.
TEST_F(SlowFirstRun, ABoardGoesOnWithItsNextRow) {
  const std::string demo =
      "head -c 40000 data/doyle.txt >small.txt; prepare text small.txt --out tiny.h5 2>/dev/null\n"
      "export WEFT_COMMIT=abc\n"
      ". train/boards/board.sh; board demo\n"
      "for seed in 0 1; do row 'my text' $seed tiny.yaml; done; finish";
  const std::string path = "PATH=$PWD/build/cpu/bin:$PATH; ";
  ASSERT_EQ(shell(path + demo), 0) << out_ << err_;
  const std::string rows = read_file(clone("runs/boards/demo/rows.jsonl"));
  EXPECT_CONTAINS(rows, R"({"row": "my text", "seed": 0, "valid": )");
  EXPECT_CONTAINS(rows, R"({"row": "my text", "seed": 1, "valid": )");
  EXPECT_CONTAINS(rows, R"("commit": "abc", "card": "CPU")");
  EXPECT_CONTAINS(out_, "| my text | 2 | ");
  EXPECT_TRUE(fs::exists(clone("runs/boards/demo/curves.html")));
  const std::string table = read_file(clone("runs/boards/demo/table.md"));

  ASSERT_EQ(shell(path + demo), 0) << out_ << err_;
  EXPECT_EQ(out_.find("my text, seed"), std::string::npos) << out_;
  EXPECT_EQ(read_file(clone("runs/boards/demo/rows.jsonl")), rows);
  EXPECT_EQ(read_file(clone("runs/boards/demo/table.md")), table);
  // A run that was stopped, of a row that is not there, is finished first.
  const std::string stopped = "runs/boards/demo/my_text_1";
  ASSERT_EQ(
      shell("sed -i '$d' runs/boards/demo/rows.jsonl; rm -r " + stopped + "; " + path +
            "train --config tiny.yaml --set seed=1 --no-report --max-steps 2 --out " + stopped),
      0)
      << err_;
  ASSERT_EQ(shell(path + demo), 0) << out_ << err_;
  const auto without_seconds = [](const std::string& t) { return t.substr(0, t.rfind(" | ")); };
  EXPECT_EQ(without_seconds(read_file(clone("runs/boards/demo/table.md"))), without_seconds(table));
  EXPECT_CONTAINS(read_file(clone(stopped + "/metrics.jsonl")), R"("step": 4)");
  const std::string first_half = "row half 0 tiny.yaml --max-steps 2";
  EXPECT_EQ(
      shell(path + "export WEFT_COMMIT=abc; . train/boards/board.sh; board demo; " + first_half),
      1);
  EXPECT_CONTAINS(err_, "half_0 was stopped; the same command goes on with it");
  EXPECT_EQ(shell("export WEFT_COMMIT=def; . train/boards/board.sh; board demo"), 1);
  EXPECT_CONTAINS(err_, "rows of another commit or card");
}

TEST_F(SlowFirstRun, ABoardTrainsARowOnEachGpu) {
  const std::string demo =
      "export WEFT_COMMIT=abc CUDA_VISIBLE_DEVICES=0,1 PATH=$PWD/build/cpu/bin:$PATH\n"
      "head -c 40000 data/doyle.txt >small.txt; prepare text small.txt --out tiny.h5 2>/dev/null\n"
      ". train/boards/board.sh; board two\n";
  ASSERT_EQ(shell(demo + "for seed in 0 1 2; do row a $seed tiny.yaml; done; finish"), 0)
      << out_ << err_;
  for (const char* said :
       {"a, seed 0, on GPU 0", "a, seed 1, on GPU 1", "a, seed 2, on GPU ", "| a | 3 | "})
    EXPECT_CONTAINS(out_, said);
  EXPECT_EQ(shell(demo + "row b 0 tiny.yaml --set model.width=1; finish"), 1);
  EXPECT_CONTAINS(err_, "model.width");
  EXPECT_CONTAINS(err_, "stopped; the same command goes on");
}

// The numbers of a table by hand: mean 2, squares of differences 1 and 1, standard error 1.
TEST_F(SlowFirstRun, ABoardsTableHasMeanAndStandardError) {
  const std::string line =
      R"(echo '{"row": "a", "seed": %, "valid": #, "test": 2.5, "seconds": 4,)"
      R"( "commit": "abc", "card": "CPU", "command": ""}' >>demo/rows.jsonl; )";
  std::string rows;
  for (const auto& [seed, valid] : {std::pair{"0", "1"}, {"1", "3"}}) {
    std::string row = line;
    row.replace(row.find('%'), 1, seed).replace(row.find('#'), 1, valid);
    rows += row;
  }
  ASSERT_EQ(
      shell("export WEFT_COMMIT=abc; . train/boards/board.sh; board demo demo; " + rows + "finish"),
      0)
      << out_ << err_;
  EXPECT_CONTAINS(out_,
                  "| a | 2 | 2.0000 ± 1.0000 (1.0000 to 3.0000) | "
                  "2.5000 ± 0.0000 (2.5000 to 2.5000) | 4 |");
}

// As written: of a machine without a GPU.
TEST_F(SlowFirstRun, TheCommandsOfTheFrontPageWorkOnACpu) {
  const std::string readme = read_file(WEFT_TEST_SOURCE "/README.md");
  const std::size_t section = readme.find("## Train your own");
  ASSERT_NE(section, std::string::npos);
  const std::string commands = lines_behind(readme.substr(section), "```bash");
  for (const char* program : {"prepare ", "train ", "evaluate ", "sample ", "report "})
    EXPECT_CONTAINS(commands, program);
  EXPECT_EQ(shell(commands), 0) << commands << out_ << err_;
  EXPECT_TRUE(fs::exists(clone("compare.html")));
}
}  // namespace
}  // namespace weft
