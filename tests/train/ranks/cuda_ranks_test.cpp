// SPDX-License-Identifier: MIT
// Several GPUs of this host, one process each: the same model, the same results, and an end when
// one fails.
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>
#ifdef WEFT_CUDA
#include "tests/src/ranks/ranks.h"
#include "tests/train/ranks/ranks_testing.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <signal.h>

namespace fs = std::filesystem;

namespace weft {
namespace {
class CudaMultiRanks : public GpuRuns {
 protected:
  // A run that goes on until something ends it, and has got somewhere.
  std::vector<std::string> endless(int save_every = 50) const {
    return arguments("run", {"train.steps=10000000", "train.eval_every=0",
                             str("train.save_every=", save_every), "train.keep=2"});
  }

  void expect_progress() const {
    EXPECT_TRUE(eventually([&] {
      return fs::exists(dir / "run/metrics.jsonl") && !of("run", "step").empty() &&
             of("run", "step").back() >= 100;
    }));
    let_ranks_report();
  }

  // A program of somebody else, by what people have installed; "" when it is not there.
  static std::string installed(const std::string& name) {
    std::istringstream path(str(std::getenv("PATH"), ":/opt/torch/.venv/bin"));
    for (std::string folder; std::getline(path, folder, ':');)
      if (fs::exists(folder + "/" + name)) return folder + "/" + name;
    return "";
  }

  // Trains 20 steps with what `starter` is told before the program; the run is that of --gpus 2.
  void expect_started_by(const std::string& starter, std::vector<std::string> words) {
    const std::string program = installed(starter);
    if (program.empty()) GTEST_SKIP() << "no " << starter << " here";
    run("ours", 2, {});
    words.push_back(str(WEFT_TEST_BIN, "/train"));
    const std::vector<std::string> ours = arguments("theirs");
    words.insert(words.end(), ours.begin(), ours.end());
    Process process(dir, program, words, {.name = starter});
    EXPECT_EQ(process.wait(), 0) << process.out() << process.err();
    EXPECT_EQ(timeless_metrics(dir / "ours/metrics.jsonl"),
              timeless_metrics(dir / "theirs/metrics.jsonl"));
    EXPECT_TRUE(read_file(dir / "ours/latest.h5") == read_file(dir / "theirs/latest.h5"));
  }
};

TEST_F(CudaMultiRanks, TrainTheSameModelAsOneGpu) {
  const std::vector<std::string> fifty{"train.steps=50", "train.log_every=1",
                                       "train.eval_every=25"};
  run("one", 1, fifty);
  run("two", 2, fifty);
  run("again", 2, fifty);
  setenv("WEFT_HOST_REDUCE", "1", 1);  // another way for the same sums: two numbers have one
  run("by_host", 2, fifty);
  unsetenv("WEFT_HOST_REDUCE");
  for (const char* key : {"loss", "valid_bits", "valid_bits_ema"})
    expect_near_series("two", "one", key, 1e-6);
  for (const char* other : {"again", "by_host"}) {
    EXPECT_EQ(timeless_metrics(dir / "two/metrics.jsonl"),
              timeless_metrics(dir / str(other, "/metrics.jsonl")));
    EXPECT_TRUE(read_file(dir / "two/latest.h5") == read_file(latest(other))) << other;
  }
}

TEST_F(CudaMultiRanks, TorchrunStartsThem) {
  expect_started_by("torchrun",
                    {"--no-python", "--nproc-per-node", "2", "--master-port", str(free_port())});
}

TEST_F(CudaMultiRanks, MpirunStartsThem) {
  expect_started_by("mpirun", {"--allow-run-as-root", "-n", "2"});
}

TEST_F(CudaMultiRanks, EvaluateAndSampleAreTheSameBits) {
  run("run", 2, {"precision=bf16"});
  const auto output = [&](const std::string& program, std::vector<std::string> words, int gpus) {
    words.insert(words.end(), {"--checkpoint", dir / "run/latest.h5", "--device", "cuda"});
    Launched launched(dir, program, words, gpus);
    EXPECT_EQ(launched.wait(), 0) << launched.err();
    return launched.out();
  };
  const std::vector<std::string> evaluation{"--min-context", "20", "--batch", "3"},
      texts{"--count", "5", "--length", "40", "--batch", "2"};
  EXPECT_EQ(output("evaluate", evaluation, 2), output("evaluate", evaluation, 1));
  EXPECT_EQ(output("sample", texts, 2), output("sample", texts, 1));
}

// While NCCL carries all sums, and while they go through the host's memory.
class CudaMultiRanksByWay : public CudaMultiRanks, public testing::WithParamInterface<const char*> {
 protected:
  static std::string way() { return str("WEFT_HOST_REDUCE=", GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(CudaMulti, CudaMultiRanksByWay, testing::Values("0", "1"),
                         [](const auto& info) { return info.param[0] == '0' ? "nccl" : "host"; });

TEST_P(CudaMultiRanksByWay, ARankThatIsKilledEndsAll) {
  Launched launched(dir, "train", endless(), 2, {.environment = {way()}});
  expect_progress();
  launched.signal_rank(1, SIGKILL);
  EXPECT_EQ(launched.wait(), 1);
  EXPECT_CONTAINS(launched.err(), "rank 1 was ended by signal 9");
  EXPECT_GE(load_model(dir / "run/latest.h5", "cuda")->state.step, 50);
}

TEST_P(CudaMultiRanksByWay, ARankThatStopsEndsThoseThatWaitForItsGpu) {
  Launched launched(dir, "train", endless(), 2, {.environment = {way(), "WEFT_HANG_SECONDS=6"}});
  expect_progress();
  launched.signal_rank(1, SIGSTOP);
  EXPECT_CONTAINS(error_line_of(launched), "rank 1");
}

TEST_F(CudaMultiRanks, ARankThatHangsInItsWorkEndsThoseThatWaitForItsGpu) {
  // A rank that saves has 60 s.
  Launched launched(dir, "train", endless(0), 2, {.environment = {"WEFT_HANG_SECONDS=6"}});
  expect_progress();
  launched.expect_ranks();
  HungThread thread(launched.rank(1));
  if (!thread) GTEST_SKIP() << "this process may not trace others";
  thread.wait_for_end();
  const std::string line = error_line_of(launched);
  EXPECT_CONTAINS(line, "rank 1");
  EXPECT_CONTAINS(line, ": it has not come further for 6 s");
}

TEST_P(CudaMultiRanksByWay, SigtermSaves) {
  Launched launched(dir, "train", endless(), 2, {.environment = {way()}});
  expect_progress();
  launched.expect_ranks();
  launched.signal(SIGTERM);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_CONTAINS(launched.out(), "SIGTERM: stopped after step ");
}

// These need one GPU.
class CudaRanks : public testing::Test {
 protected:
  CudaRanks() {
    write_corpus(dir / "corpus.h5", 6000, 32);
    write_file(dir / "small.yaml", small_yaml(dir.path()));
  }

  const std::vector<std::string>& arguments() {
    return words_ = {"--config", dir / "small.yaml", "--device", "cuda", "--out", dir / "run"};
  }

  TempDir dir;

 private:
  std::vector<std::string> words_;
};

TEST_F(CudaRanks, MoreGpusThanThereAreIsOneLine) {
  Launched launched(dir, "train", arguments(), 99);
  EXPECT_EQ(launched.wait(), 1);
  EXPECT_CONTAINS(launched.err(), "--gpus 99: this machine has ");
}

TEST_F(CudaRanks, ARankThatCannotSeeItsGpuIsNamed) {
  const int port = free_port();
  const auto environment = [&](int rank) {
    std::vector<std::string> variables = rank_environment(rank, 2, port);
    variables.push_back("CUDA_VISIBLE_DEVICES=0");
    return variables;
  };
  Process zero(dir, "train", arguments(), {.environment = environment(0), .name = "zero"});
  Process one(dir, "train", arguments(), {.environment = environment(1), .name = "one"});
  EXPECT_EQ(one.wait(), 1);
  const std::string text = error_line_of(zero);
  EXPECT_CONTAINS(text, "rank 1");
  EXPECT_CONTAINS(text, "cuda:1");
  EXPECT_EQ(one.err(), "");
}
}  // namespace
}  // namespace weft
#endif
