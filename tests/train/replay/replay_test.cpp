// SPDX-License-Identifier: MIT
// Replay: without faults it changes nothing; flipped bits are found, named, and end the run.
#include "tests/train/replay/flips.h"
#include "tests/train/runs.h"
#include "train/trainer/report.h"
#include "train/trainer/trainer.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
struct Count {
  int flips = 0, changed = 0, caught = 0;
};

void expect_caught(const Count& count, const char* what) {
  std::printf("%s: %d flips, %d changed the state after the update, %d of these were caught\n",
              what, count.flips, count.changed, count.caught);
  testing::Test::RecordProperty("flips", std::to_string(count.flips));
  testing::Test::RecordProperty("changed", std::to_string(count.changed));
  testing::Test::RecordProperty("caught", std::to_string(count.caught));
  EXPECT_GT(count.changed, count.flips / 3);
  EXPECT_GE(count.caught, 0.99 * count.changed);
}

// Behind any launch of either run of an update whose launches are not captured. A flip has changed
// the weights when one of the runs leaves others than without it.
void flip_behind_launches(Flips& f, int flips, Count& count) {
  std::vector<std::string> seen;
  std::size_t at = 0, first_end = 0;
  std::function<void()> flip = [] {};
  std::vector<uint64_t> clean, of_first;
  bool looking = false;
  const AfterLaunches hook(*f.steps.device, [&](const std::string& kernel) {
    if (looking) return;
    seen.push_back(kernel);
    if (seen.size() == at) flip();
    if (seen.size() != first_end) return;
    looking = true;
    of_first = f.fingerprint();
    looking = false;
  });
  const auto run = [&](const std::function<void()>& work) {
    f.restore();
    seen.clear();
    work();
  };
  run([&] { f.steps.step->run(f.steps.source, f.steps.next); });
  const std::vector<std::string> update = seen;
  clean = f.fingerprint();
  run([&] { EXPECT_EQ(f.run_twice(), ""); });
  EXPECT_EQ(f.fingerprint(), clean);
  const auto first = std::search(seen.begin(), seen.end(), update.begin(), update.end()),
             second = std::search(first + 1, seen.end(), update.begin(), update.end());
  ASSERT_NE(second, seen.end());
  const std::size_t begins[] = {static_cast<std::size_t>(first - seen.begin()),
                                static_cast<std::size_t>(second - seen.begin())};
  first_end = begins[0] + update.size();
  for (int i = 0; i < flips; ++i) {
    flip = f.draw();
    at = begins[i % 2] + f.below(update.size() + 1);
    std::string difference;
    run([&] { difference = f.run_twice(); });
    at = 0;
    const bool changed = f.fingerprint() != clean || of_first != clean;
    ++count.flips;
    count.changed += changed;
    count.caught += changed && !difference.empty();
    EXPECT_TRUE(changed || difference.empty() || difference.find("the gradient of") == 0)
        << difference;
  }
}

TEST(Replay, FindsFlippedBits) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const Config config = small_config(
      dir.path(), {"model.context=16", "model.position_axes=[4, 4]", "model.layers=1"});
  Count count;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Flips flips(config, "cpu", dtype, 7);
    flip_behind_launches(flips, 150, count);
  }
  expect_caught(count, "Replay on the CPU");
}

// 0: none.
std::vector<TrainHooks> hooks_for(int64_t every) {
  return every > 0 ? std::vector{replay_every(every)} : std::vector<TrainHooks>{};
}

class ReplayTest : public Runs {
 protected:
  inline static const std::vector<std::string> kShort{"train.steps=12", "train.eval_every=0"};

  std::string train_with(const std::string& name, const Fault& fault,
                         const TrainOptions& more = {}) {
    TrainOptions options = more;
    options.out = dir / name, options.device = "cpu", options.hooks = {replay_every(5)};
    std::ostringstream text;
    Progress progress(text, false);
    Processes alone;
    Trainer trainer(small_config(dir.path(), kShort), options, progress, alone);
    return run_with(trainer, fault);
  }
};

TEST_F(ReplayTest, AFaultEndsTheRunAtTheLastGoodCheckpoint) {
  const std::string norm = "blocks.1.mlp_norm.weight", weight = "blocks.0.mlp.up.weight";
  // Steps 1 to 4 and 6 to 9 update once, steps 5 and 10 twice.
  std::string error = train_with(
      "weights",
      {.kernel = "adamw_update", .launch = 12, .parameter = weight, .element = 77, .bit = 3});
  EXPECT_CONTAINS(error, "step 10 was run twice from one state, and the bits differ: the weight " +
                             weight + ", element 77: 0x");
  EXPECT_CONTAINS(error, "Nothing was saved since step 6; go on from there with --resume");
  const auto bits = [&error](std::size_t at) {
    return std::stoul(error.substr(at + 2), nullptr, 16);
  };
  EXPECT_EQ(bits(error.find("0x")) ^ bits(error.rfind("0x")), 8u);
  error = train_with("gradients", {
                                      .kernel = "clip_coefficient",
                                      .launch = 5,
                                      .block = &ParameterStore::gradients,
                                      .parameter = norm,
                                      .element = 31,
                                      .bit = 30,
                                  });
  EXPECT_CONTAINS(
      error, "step 5 was run twice from one state, and the bits differ: the gradient of " + norm +
                 ", element 31: 0x");
  EXPECT_CONTAINS(error, "Nothing was saved since step 0");
  EXPECT_FALSE(std::filesystem::exists(dir / "gradients/latest.h5"));
  error = train_with(
      "average",
      {.kernel = "adamw_update", .launch = 11, .block = &ParameterStore::ema, .parameter = norm});
  EXPECT_CONTAINS(
      error, "step 10 was run twice from one state, and the bits differ: the moving average of " +
                 norm + ", element 0: 0x");
  // A fault between verified updates is not seen, and what was saved before it is whole.
  EXPECT_EQ(train_with("unseen", {.kernel = "adamw_update", .launch = 8, .parameter = weight}), "");
  EXPECT_EQ(run("clean", kShort), "");
  EXPECT_EQ(run("weights", kShort, {.resume = ""}), "");
  expect_same_latest("weights", "clean");
}

TEST_F(ReplayTest, IsAnOptionOfTrain) {
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const auto arguments = [&](const std::string& every) {
    return std::vector<std::string>{
        "--config", dir / "small.yaml", "--out", dir / "run",      "--device",
        "cpu",      "--max-steps",      "2",     "--verify-every", every};
  };
  Process verified(dir, "train", arguments("2"));
  EXPECT_EQ(verified.wait(), 0) << verified.err();
  EXPECT_CONTAINS(verified.out(), ", replay ");
  Process none(dir, "train", arguments("0"));
  EXPECT_CONTAINS(error_line_of(none), "--verify-every");
}

// Neither weights nor what is logged know of it.
TEST_F(ReplayTest, WithoutFaultsItChangesNothing) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    const std::vector<std::string> overrides{
        "train.accumulation=2",      "train.context_schedule=[[0, 16], [7, 64]]",
        "train.loss_scale=16777216", "train.loss_scale_window=4",
        "train.log_every=3",         "train.steps=12"};
    std::string files[2];
    for (const int verify : {0, 3}) {
      const std::string name = str(name_of(dtype), verify);
      EXPECT_EQ(run(name, overrides, {.dtype = dtype, .hooks = hooks_for(verify)}), "");
      files[verify > 0] =
          read_file(latest(name)) + timeless_metrics(dir / (name + "/metrics.jsonl"));
    }
    EXPECT_TRUE(files[0] == files[1]) << name_of(dtype);
  }
}

// In either run: the state is the one before the step, and its results are counted once.
TEST(Replay, AStepThatIsGivenUpHasChangedNothing) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  Steps whole(small_config(dir.path(), {"train.accumulation=2"}), "cpu"),
      given_up(whole.config, "cpu");
  whole.run(3);
  Replay replay(*given_up.step);
  given_up.run(2);

  struct Stop {};

  for (const int at : {1, 2}) {
    const std::vector<uint64_t> before = fingerprints(*given_up.device, state_of(given_up.store));
    int calls = 0;
    const auto stop = [&] {
      if (++calls == at) throw Stop();
    };
    EXPECT_THROW(replay.run_twice(given_up.source, 2, stop), Stop);
    EXPECT_EQ(fingerprints(*given_up.device, state_of(given_up.store)), before);
  }
  EXPECT_EQ(replay.run_twice(given_up.source, 2).difference, "");
  EXPECT_EQ(fingerprints(*given_up.device, state_of(given_up.store)),
            fingerprints(*whole.device, state_of(whole.store)));
  EXPECT_EQ(given_up.step->results().size(), 3u);
}

TEST(Replay, IsPartOfThePlan) {
  const auto device = make_device("cpu");
  const Config config = small_config("x");
  const MemoryPlan plan = planned_memory(config, *device, true);
  EXPECT_EQ(replay_memory(plan), plan.weights + plan.gradients + plan.optimizer);
  EXPECT_CONTAINS(check_memory(config, *device, {replay_every(2)}),
                  ", replay " + bytes_text(replay_memory(plan)) + ")");
  EXPECT_EQ(check_memory(config, *device).find("replay"), std::string::npos);
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  Steps steps(small_config(dir.path()), "cpu");
  const std::size_t before = steps.device->pool->in_use();
  const Replay replay(*steps.step);
  const std::size_t taken = steps.device->pool->in_use() - before;
  EXPECT_GE(taken, replay_memory(plan));
  EXPECT_LT(taken, replay_memory(plan) + 5000) << "alignment, and what the step reports";
}

#ifdef WEFT_CUDA
// Eager: behind any launch. As graphs: between the micro-batches of either run.
TEST(CudaReplay, FindsFlippedBits) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  Count count;
  {
    Flips eager(small_config(dir.path(), {"train.graph=false", "model.layers=1"}), "cuda",
                DType::bf16, 7);
    flip_behind_launches(eager, 150, count);
  }
  Flips f(small_config(dir.path(), {"train.accumulation=2"}), "cuda", DType::bf16, 8);
  const auto update = [&](const std::function<void()>& between) {
    f.restore();
    f.steps.step->run(f.steps.source, f.steps.next, between);
    return f.fingerprint();
  };
  const std::vector<uint64_t> clean = update({});
  f.restore();
  EXPECT_EQ(f.run_twice(), "");
  EXPECT_EQ(f.fingerprint(), clean);
  for (int i = 0; i < 150; ++i) {
    const std::function<void()> flip = f.draw();
    const bool changed = update(flip) != clean;
    f.restore();
    int calls = 0;
    const std::string difference = f.run_twice([&] {
      if (calls++ == i % 2) flip();
    });
    ++count.flips;
    count.changed += changed;
    count.caught += changed && !difference.empty();
  }
  expect_caught(count, "Replay on the GPU");
}

// Captured steps, a loss scale that changes, a longer context: what a run without it writes.
TEST(CudaReplay, WithoutFaultsItChangesNothing) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  for (const char* precision : {"bf16", "f16"})
    for (const char* accumulation : {"1", "2"}) {
      const Config config = small_config(
          dir.path(), {str("precision=", precision), str("train.accumulation=", accumulation),
                       "train.context_schedule=[[0, 16], [9, 64]]", "train.loss_scale=16777216",
                       "train.loss_scale_window=4"});
      std::string files[2];
      for (const int verify : {0, 2}) {
        const std::string out = dir / str(precision, accumulation, verify);
        train(config, {.out = out, .device = "cuda", .hooks = hooks_for(verify)});
        files[verify > 0] =
            read_file(out + "/latest.h5") + timeless_metrics(out + "/metrics.jsonl");
      }
      EXPECT_TRUE(files[0] == files[1]) << precision << ", " << accumulation;
    }
}
#endif
}  // namespace
}  // namespace weft
