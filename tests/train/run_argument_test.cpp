// SPDX-License-Identifier: MIT
// A run folder as an argument of train, evaluate, sample, convert and report.
#include "train/program/run_argument.h"

#include "src/files/hdf5.h"
#include "src/parts/parts.h"
#include "tests/train/shell_test.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
namespace {
class RunArgumentTest : public ShellTest {
 protected:
  // A run of 6 steps, where small.yaml has 20, that stops after the third.
  void train_half(const std::string& more = "") {
    ok("train --config small.yaml --device cpu --set train.steps=6 --set train.eval_every=2 --out "
       "runs/my --max-steps 3" +
       more);
  }

  void train_whole() {
    ok("train --config small.yaml --device cpu --set train.steps=6 --set train.eval_every=2 --out "
       "whole");
  }

  void ok(const std::string& line) { ASSERT_EQ(shell(line), 0) << line << out_ << err_; }

  void expect_whole(const std::string& folder) const {
    expect_same_tensors(dir / "whole/latest.h5", dir / (folder + "/latest.h5"));
    EXPECT_EQ(Hdf5File::open(dir / (folder + "/latest.h5")).int_attribute("step"), 6);
  }
};

TEST_F(RunArgumentTest, TrainGoesOnWithTheRunInAFolder) {
  train_whole();
  for (const char* resume :
       {"--resume runs/my", "--resume runs/my/", "--resume", "--resume --out runs/my",
        "--config runs/my/config.yaml --resume", "--config small.yaml --out runs/my --resume"}) {
    SCOPED_TRACE(resume);
    train_half();
    ok(str("train ", resume));
    EXPECT_CONTAINS(out_, ", resumed at step 3 from runs/my/latest.h5");
    EXPECT_CONTAINS(out_, "step 6/6 ");
    EXPECT_CONTAINS(out_, "--device=cpu (runs/my/options.txt)\n");
    EXPECT_EQ(out_.find("changed "), std::string::npos) << out_;
    expect_whole("runs/my");
    std::filesystem::remove_all(dir / "runs");
  }
}

TEST_F(RunArgumentTest, ResumeAloneTakesTheRunThatSavedLast) {
  EXPECT_CONTAINS(refused("train --resume"), "nothing to resume: no folder in runs/ holds a run");
  train_half();
  ok("train --resume runs/my --max-steps 4 --out runs/other");
  std::filesystem::create_directory(dir / "runs/none");
  const auto saved = std::filesystem::last_write_time(dir / "runs/other/latest.h5");
  std::filesystem::last_write_time(dir / "runs/my/latest.h5", saved + std::chrono::hours(1));
  ok("train --resume --max-steps 4");
  EXPECT_CONTAINS(out_, "resume      runs/my, the run in runs/ that saved last\n");
  std::filesystem::last_write_time(dir / "runs/my/latest.h5", saved - std::chrono::hours(1));
  ok("train --resume");
  EXPECT_CONTAINS(out_, "resume      runs/other, the run in runs/ that saved last\n");
}

// Those of the run stand, but for what is given now; a line names what changes.
TEST_F(RunArgumentTest, ResumeKeepsEveryOptionAndListsChanges) {
  train_half(" --batch 2 --set 'model.norm_eps=\n  1e-6'");
  EXPECT_EQ(read_file(dir / "runs/my/options.txt"),
            "# Options of this run, which train --resume takes again unless it is given others.\n"
            "--set=train.steps=6\n--set=train.eval_every=2\n--set=model.norm_eps=\\n  1e-6\n"
            "--device=cpu\n--batch=2\n");
  ok("train --config small.yaml --out runs/my --resume --set train.steps=8 --set "
     "train.log_every=1 --batch 1 --max-steps 4");
  EXPECT_CONTAINS(out_,
                  "options     --set=train.eval_every=2 --set=model.norm_eps=\n  1e-6 "
                  "--device=cpu (runs/my/options.txt)\n");
  EXPECT_CONTAINS(out_, "changed     --batch from 2 to 1\n");
  EXPECT_CONTAINS(out_, "changed     train.steps from 6 to 8: learning rates follow");
  EXPECT_CONTAINS(out_, "changed     train.log_every from 4 to 1\n");
  EXPECT_CONTAINS(out_, "changed     train.accumulation from 2 to 4: gradients");
  EXPECT_CONTAINS(out_, "step 4/8 ");
  ok("train --config small.yaml --out runs/my --resume --max-steps 5");
  EXPECT_CONTAINS(out_, "step 5/8 ");
  EXPECT_EQ(out_.find("changed "), std::string::npos) << out_;
}

TEST_F(RunArgumentTest, AConfigEditedByHandIsTakenAndListed) {
  train_half();
  const std::string path = dir / "runs/my/config.yaml";
  std::string text = read_file(path);
  text.replace(text.find("steps: 6"), 8, "steps: 5");
  write_file(path, text);
  std::filesystem::rename(dir / "corpus.h5", dir / "moved.h5");
  ok("mkdir data; mv moved.h5 data/corpus.h5; train --resume runs/my --set "
     "data.path=data/corpus.h5");
  EXPECT_CONTAINS(out_, "changed     train.steps from 6 to 5: learning rates follow");
  EXPECT_CONTAINS(out_, "changed     data.path from " + (dir / "corpus.h5") + " to data/corpus.h5");
  EXPECT_CONTAINS(out_, "step 5/5 ");
}

// Of a numbered checkpoint the config that it was saved with.
TEST_F(RunArgumentTest, ACheckpointGoesOnInItsFolderOrABranch) {
  train_whole();
  train_half(" --set train.save_every=2");
  ok("train --resume runs/my/step_00000002.h5 --out runs/branch");
  EXPECT_CONTAINS(out_, "resumed at step 2 from runs/my/step_00000002.h5");
  expect_whole("runs/branch");
  ok("train --resume runs/my/step_00000002.h5");
  expect_whole("runs/my");
}

TEST_F(RunArgumentTest, EvaluateSampleConvertAndReportTakeAFolder) {
  train_half();
  ok("evaluate --checkpoint runs/my/best.h5 --device cpu");
  const std::string bits = out_;
  for (const char* name : {"runs/my", "--checkpoint runs/my"}) {
    ok(str("evaluate ", name, " --device cpu"));
    EXPECT_EQ(out_, bits);
    EXPECT_CONTAINS(err_, "checkpoint runs/my/best.h5, the best of the run\n");
  }
  ok("sample runs/my --tokens --length 3 --seed 1 --device cpu");
  EXPECT_CONTAINS(err_, "checkpoint runs/my/best.h5, the best of the run\n");
  if (absent_part_text("convert").empty()) {
    ok("convert runs/my a.safetensors && convert --checkpoint runs/my b.safetensors");
    EXPECT_CONTAINS(out_, "of runs/my/best.h5, ");
    EXPECT_TRUE(read_file(dir / "a.safetensors") == read_file(dir / "b.safetensors"));
  }
  std::filesystem::remove(dir / "runs/my/best.h5");
  ok("evaluate runs/my --device cpu");
  EXPECT_CONTAINS(err_, "checkpoint runs/my/latest.h5, as there is no best.h5\n");
  EXPECT_CONTAINS(refused("evaluate runs --device cpu"),
                  "runs is no run folder: it holds neither best.h5 nor latest.h5; there is "
                  "runs/my");
}

// Each program says its own option where the data of the run is gone.
TEST_F(RunArgumentTest, MissingDataNamesTheOptionOfTheProgram) {
  train_half();
  std::filesystem::rename(dir / "corpus.h5", dir / "moved.h5");
  const std::string evaluate = refused("evaluate runs/my/best.h5 --device cpu");
  EXPECT_CONTAINS(evaluate, "or name another with --data F.h5");
  EXPECT_EQ(evaluate.find("--set"), std::string::npos) << evaluate;
  EXPECT_CONTAINS(refused("train --resume runs/my"), "name another with --set data.path=F.h5");
}

TEST_F(RunArgumentTest, ATextWithoutATrainSplitIsEvaluated) {
  train_half();
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>(i * i % 13);
  write_file(dir / "other.txt", text);
  ok("prepare text other.txt --out other.h5 --split 0,0,1");
  ok("evaluate runs/my --data other.h5 --device cpu");
  EXPECT_CONTAINS(out_, "\"split\": \"test\"");
  EXPECT_CONTAINS(refused("train --config small.yaml --device cpu --set model.vocab=256 --set "
                          "data.path=other.h5 --out runs/other"),
                  "other.h5: the split train is empty");
  EXPECT_FALSE(std::filesystem::exists(dir / "runs/other"));
  EXPECT_CONTAINS(refused("evaluate runs/my/best.h5 --data small.yaml --device cpu"),
                  "of a text, prepare text makes a data file");
}

TEST_F(RunArgumentTest, AnotherConfigNeedsAnotherRun) {
  train_half();
  EXPECT_EQ(shell("train --resume runs/my --set model.width=64 --out runs/new"), 1);
  EXPECT_CONTAINS(err_,
                  "; for another run leave out --resume and name a new --out; to start from "
                  "these weights, --init runs/my/latest.h5\n");
}

// Neither the config nor the options of the run take what was refused.
TEST_F(RunArgumentTest, ARunTakesNoFewerStepsThanItHasDone) {
  train_half();
  const auto kept = [&] {
    return read_file(dir / "runs/my/config.yaml") + read_file(dir / "runs/my/options.txt");
  };
  const std::string before = kept();
  EXPECT_CONTAINS(refused("train --resume runs/my --set train.steps=2"),
                  "train.steps: 2, but the run is at step 3 (runs/my/latest.h5): set 3 or more, or "
                  "resume an earlier checkpoint with a new --out");
  EXPECT_EQ(kept(), before);
  ok("train --resume runs/my");
  ok("train --resume runs/my");
  EXPECT_CONTAINS(out_, "\nthis run was finished already, at step 6; more: --set train.steps=N\n");
  ok("train --resume runs/my/latest.h5 --out branch");
  EXPECT_CONTAINS(out_, "at step 6, saved branch/latest.h5; more: --set train.steps=N\n");
}

TEST_F(RunArgumentTest, RunsNearAMissingOneAreNamed) {
  train_half();
  ok("mkdir -p empty outer; cp -r runs/my outer/inner");
  std::vector<std::string> lines = {"evaluate RUN", "sample RUN --length 3", "train --resume RUN",
                                    "train --config small.yaml --device cpu --init RUN"};
  if (absent_part_text("convert").empty()) lines.emplace_back("convert RUN a.safetensors");
  if (absent_part_text("report").empty()) lines.emplace_back("report RUN");
  if (absent_part_text("inspect").empty())
    lines.emplace_back("inspect --checkpoint RUN --pattern 0,0 --text small.yaml");
  const auto refused_of = [&](std::string line, const std::string& run) {
    return refused(line.replace(line.find("RUN"), 3, run));
  };
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    EXPECT_CONTAINS(refused_of(line, "runs/nope"), "; there is runs/my\n");
    EXPECT_CONTAINS(refused_of(line, "empty"), "; there is runs/my\n");
    EXPECT_CONTAINS(refused_of(line, "outer"), "; there is outer/inner\n");
  }
  std::filesystem::remove(dir / "runs/my/best.h5");
  lines.resize(4);
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    const std::string error = refused_of(line, "runs/my/best.h5");
    EXPECT_CONTAINS(error, "runs/my/best.h5 does not exist");
    EXPECT_CONTAINS(error, "; there is runs/my/latest.h5\n");
  }
}

TEST_F(RunArgumentTest, InitTakesARunFolder) {
  train_half();
  ok("train --config small.yaml --device cpu --set train.steps=1 --out runs/b --init runs/my");
  EXPECT_CONTAINS(out_, "\ninit        checkpoint runs/my/best.h5, the best of the run\n");
  EXPECT_CONTAINS(out_, "\ninit        runs/my/best.h5, the moving average of the weights");
}

// RUN and --checkpoint are one argument.
TEST_F(RunArgumentTest, HelpAsksForARunOnce) {
  const auto count = [&](const std::string& word) {
    int found = 0;
    for (std::size_t at = 0; (at = out_.find(word, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  std::vector<std::string> programs = {"evaluate", "sample"};
  if (absent_part_text("report").empty()) programs.emplace_back("report");
  for (const std::string& program : programs) {
    SCOPED_TRACE(program);
    ok(program + " --help");
    EXPECT_EQ(count("REQUIRED"), 1) << out_;
    EXPECT_CONTAINS(out_, "the same as RUN\n");
  }
  if (!absent_part_text("convert").empty()) return;
  ok("convert --help");
  EXPECT_EQ(count("REQUIRED"), 2) << out_;
  EXPECT_CONTAINS(out_, "Usage: convert [OPTIONS] FROM TO\n");
  EXPECT_CONTAINS(out_, "the same as FROM\n");
}

TEST_F(RunArgumentTest, WordsWithoutAnOptionNameTheOption) {
  EXPECT_CONTAINS(refused("train small.yaml"), "did you mean --config small.yaml?");
  if (absent_part_text("inspect").empty()) {
    EXPECT_CONTAINS(refused("inspect small.yaml"), "did you mean --config small.yaml?");
  }
  EXPECT_CONTAINS(refused("train ."), "did you mean --resume .?");
  EXPECT_CONTAINS(refused("train"), "--config is required, or --resume RUN");
  EXPECT_CONTAINS(refused("evaluate"), "RUN is required: run folder of train, of which best.h5");
  EXPECT_CONTAINS(refused("prepare text"), "FILE is required: ");
  EXPECT_CONTAINS(refused("train --resume runs/no"), "nothing to resume: runs/no does not exist");
  train_half();
  write_file(dir / "runs/my/options.txt", "--device=cpu\n--lost=3\n");
  EXPECT_CONTAINS(refused("train --resume runs/my"),
                  "the run keeps --lost=3, an option that is unknown here");
  EXPECT_CONTAINS(refused("train --config small.yaml --resume"),
                  "latest.h5 does not exist; there is runs/my");
  EXPECT_CONTAINS(refused("train --config small.yaml --out runs/my"),
                  "runs/my holds a run already (latest.h5): go on with --resume runs/my");
}
}  // namespace
}  // namespace weft
