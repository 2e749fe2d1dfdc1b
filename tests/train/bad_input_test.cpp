// SPDX-License-Identifier: MIT
// What people get wrong: every program says so on one line and leaves with 1; checkpoints of before
// stay as they were.
#include "data/dataset.h"
#include "src/config/config.h"
#include "src/config/write_config.h"
#include "src/files/checkpoint.h"
#include "src/files/hdf5.h"
#include "tests/train/training.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
class BadInputTest : public testing::Test {
 protected:
  BadInputTest() {
    write_corpus(dir / "corpus.h5", 6000, 32);
    write_file(dir / "small.yaml", small_yaml(dir.path()));
  }

  std::vector<std::string> train_with(const std::vector<std::string>& sets,
                                      const std::string& out = "run") {
    std::vector<std::string> arguments{"--config", dir / "small.yaml", "--device", "cpu",
                                       "--out",    dir / out};
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    return arguments;
  }

  // The one line that the program leaves on stderr; its exit code must be 1.
  std::string error_line(const std::string& program, const std::vector<std::string>& arguments,
                         int64_t limit_bytes = 0) {
    Process process(dir, program, arguments, {.limit_bytes = limit_bytes});
    return error_line_of(process);
  }

  // Two steps into <dir>/run, saved.
  void train_two_steps() {
    train(small_config(dir.path(), {"train.steps=2", "train.eval_every=0"}),
          {.out = dir / "run", .device = "cpu"});
  }

  TempDir dir;
};

TEST_F(BadInputTest, CommandLine) {
  EXPECT_CONTAINS(error_line("train", {}), "--config");
  EXPECT_CONTAINS(error_line("train", {"--confg", "x"}), "--help");
  EXPECT_CONTAINS(error_line("train", {"--config", "x", "--max-steps", "many"}), "max-steps");
  EXPECT_CONTAINS(error_line("evaluate", {}), "RUN is required");
}

TEST_F(BadInputTest, MistypedWordsNameTheNearest) {
  EXPECT_CONTAINS(error_line("train", {"--confg", "x"}), "did you mean --config?");
  EXPECT_CONTAINS(error_line("sample", {"--checkpoint", "x", "--lenght=5"}),
                  "did you mean --length?");
  EXPECT_CONTAINS(error_line("train", {"foo"}), "did you mean --config foo?");
  EXPECT_CONTAINS(error_line("prepare", {"foo"}), "text, tokens, enwik8");
  EXPECT_CONTAINS(error_line("prepare", {}), "text, tokens, enwik8");
}

TEST_F(BadInputTest, OptionsAreCheckedBeforeDataIsLookedFor) {
  const auto without_data = [this](std::vector<std::string> more) {
    more.insert(more.begin(), {"--config", dir / "small.yaml", "--device", "cpu", "--out",
                               dir / "none", "--set", "data.path=missing.h5"});
    return error_line("train", more);
  };
  EXPECT_CONTAINS(without_data({}), "missing.h5");
  EXPECT_CONTAINS(without_data({"--batch", "1000"}), "--batch");
  EXPECT_CONTAINS(without_data({"--resume"}), "resume");
}

TEST_F(BadInputTest, HelpAndVersionAreNoErrors) {
  for (const char* program : {"train", "evaluate", "sample"}) {
    Process help(dir, program, {"--help"});
    EXPECT_EQ(help.wait(), 0);
    EXPECT_CONTAINS(help.out(), "Examples:");
    Process version(dir, program, {"--version"});
    EXPECT_EQ(version.wait(), 0);
    EXPECT_CONTAINS(version.out(), "weft ");
  }
}

TEST_F(BadInputTest, Config) {
  EXPECT_CONTAINS(error_line("train", {"--config", dir / "missing.yaml"}), "missing.yaml");
  EXPECT_CONTAINS(error_line("train", train_with({"train.learning_rat=1"})), "learning_rate");
  EXPECT_CONTAINS(error_line("train", train_with({"train.batch=many"})), "train.batch");
  EXPECT_CONTAINS(error_line("train", train_with({"model.position_axes=[3, 5]"})), "position_axes");
  EXPECT_CONTAINS(error_line("train", train_with({"model.attention=[{kind: stridet}]"})),
                  "strided");
  EXPECT_CONTAINS(error_line("train", train_with({"model.attention=[{kind: local, stride: 0}]"})),
                  "stride");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST_F(BadInputTest, Data) {
  EXPECT_CONTAINS(error_line("train", train_with({"data.path=missing.h5"})), "missing.h5");
  EXPECT_CONTAINS(error_line("train", train_with({"model.vocab=16"})), "vocab");

  EXPECT_CONTAINS(
      error_line("train", train_with({"model.context=8192", "model.position_axes=[128, 64]"})),
      "8192");

  const std::string whole = read_file(dir / "corpus.h5");
  write_file(dir / "corpus.h5", whole.substr(0, whole.size() / 2));
  EXPECT_CONTAINS(error_line("train", train_with({})), "corpus.h5");
  write_file(dir / "corpus.h5", "not HDF5 at all");
  EXPECT_CONTAINS(error_line("train", train_with({})), "corpus.h5");
  Hdf5File foreign = Hdf5File::create(dir / "corpus.h5");
  const float value = 1;
  foreign.write("/something", StoredType::f32, {1}, &value);
  foreign.commit();
  EXPECT_CONTAINS(error_line("train", train_with({})), "train");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST_F(BadInputTest, Checkpoint) {
  train_two_steps();
  const std::string latest = dir / "run/latest.h5", whole = read_file(latest);
  const std::vector<std::string> sample_it{"--checkpoint", dir / "bad.h5", "--length", "3",
                                           "--device",     "cpu"};
  EXPECT_CONTAINS(error_line("sample", sample_it), "bad.h5");
  write_file(dir / "bad.h5", whole.substr(0, whole.size() / 2));
  EXPECT_CONTAINS(error_line("sample", sample_it), "bad.h5");
  EXPECT_CONTAINS(error_line("evaluate", {"--checkpoint", dir / "corpus.h5"}), "corpus.h5");

  // Another model's weights under this config.
  const auto device = make_device("cpu");
  const Config wide = small_config(dir.path(), {"model.width=64", "train.ema_decay=0"});
  ParameterStore store;
  const auto model = make_model(wide, store, *device);
  store.allocate(*device, DType::f32, 0, true, false);
  save_checkpoint(dir / "bad.h5", *device, store, {},
                  to_yaml(small_config(dir.path(), {"train.ema_decay=0"})));
  EXPECT_CONTAINS(error_line("sample", sample_it), "64");
  std::vector<std::string> resume = train_with({"train.ema_decay=0"}, "other");
  resume.insert(resume.end(), {"--resume", dir / "bad.h5"});
  EXPECT_CONTAINS(error_line("train", resume), "64");

  EXPECT_CONTAINS(error_line("train", train_with({})), "--resume");  // the folder holds a run
  resume = train_with({"model.width=64"});
  resume.push_back("--resume");
  EXPECT_CONTAINS(error_line("train", resume), "model.width");
  EXPECT_TRUE(read_file(latest) == whole);
}

TEST_F(BadInputTest, Sampling) {
  train_two_steps();
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--checkpoint", dir / "run/latest.h5", "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return error_line("sample", arguments);
  };
  EXPECT_CONTAINS(with({"--length", "5", "--stop", "abc"}), "the model knows 0 to 31");
  EXPECT_CONTAINS(with({"--length", "5", "--top-p", "2"}),
                  "--top-p: expected a number above 0 and at most 1, got 2");
  EXPECT_CONTAINS(with({"--length", "5", "--temperature", "-1"}),
                  "--temperature: expected a number of at least 0, got -1");
  EXPECT_CONTAINS(with({"--length", "5", "--top-k", "-2"}),
                  "--top-k: expected a number of at least 0, got -2");
  EXPECT_CONTAINS(with({"--length", "5", "--count", "0"}),
                  "--count: expected 1 to 1048576 samples in all, got 0");
  EXPECT_CONTAINS(with({}), "--length is required: how many tokens to add to the prompt");
  // bytes beyond the vocabulary of 32
  EXPECT_CONTAINS(with({"--length", "5", "--prompt", "abc"}), "prompt");
  EXPECT_CONTAINS(with({"--length", "5", "--prompt", " "}),
                  "token 0 is 32, the model knows 0 to 31");
  EXPECT_CONTAINS(with({"--length", "5", "--tokens", "--prompt", "31 32"}),
                  "32, the model knows 0 to 31");
  EXPECT_CONTAINS(with({"--length", "5", "--tokens", "--prompt", "hello"}),
                  "prompt: expected numbers from 0 to 31, separated by spaces; got \"hello\"");
  EXPECT_CONTAINS(with({"--length", "5", "--prompt-file", dir / "none.txt"}), "none.txt");
  EXPECT_CONTAINS(error_line("evaluate", {"--checkpoint", dir / "run/latest.h5", "--device", "cpu",
                                          "--min-context", "64"}),
                  "minimum context");
  EXPECT_CONTAINS(error_line("evaluate", {"--checkpoint", dir / "run/latest.h5", "--device", "cpu",
                                          "--split", "tst"}),
                  "tst");
}

TEST_F(BadInputTest, NoSuchDevice) {
  std::vector<std::string> arguments = train_with({});
  arguments[3] = "cuda:99";
  EXPECT_CONTAINS(error_line("train", arguments), "--device cpu");
  arguments[3] = "tpu";
  EXPECT_CONTAINS(error_line("train", arguments), "tpu");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST_F(BadInputTest, TooLittleMemory) {
  const std::string line = error_line("train", train_with({"train.batch=1048576"}));
  EXPECT_CONTAINS(line, "accumulation");
  EXPECT_CONTAINS(line, "planned");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST_F(BadInputTest, FullDiskWhileSaving) {
  train_two_steps();
  const std::string latest = dir / "run/latest.h5", before = read_file(latest);
  std::vector<std::string> resume = train_with({"train.save_every=3"});
  resume.push_back("--resume");
  const std::string line = error_line("train", resume, static_cast<int64_t>(before.size()) / 2);
  EXPECT_CONTAINS(line, "h5");
  EXPECT_TRUE(read_file(latest) == before);
  EXPECT_FALSE(fs::exists(latest + ".tmp"));
  EXPECT_EQ(load_model(latest, "cpu", Weights::last)->state.step, 2);
}

TEST_F(BadInputTest, NonFiniteTensorIsNamed) {
  train_two_steps();
  const std::string latest = dir / "run/latest.h5";
  const Config config = small_config(dir.path(), {"train.steps=2", "train.eval_every=0"});
  const auto device = make_device("cpu");
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, DType::f32, 0, true, true);
  const TrainState state = load_checkpoint(latest, *device, store);
  const ParamInfo& poisoned = store.params()[store.params().size() / 2];
  const float nan = NAN;
  device->upload(store.master().slice(poisoned.offset, {1}), &nan);
  save_checkpoint(latest, *device, store, state, to_yaml(config));
  const std::string before = read_file(latest);

  std::vector<std::string> resume = train_with({"train.save_every=3"});
  resume.push_back("--resume");
  const std::string line = error_line("train", resume);
  EXPECT_CONTAINS(line, "latest.h5: /params/" + poisoned.name + " holds nan");
  EXPECT_TRUE(read_file(latest) == before);
}

// A rate at which the first update sends the weights far away: the gradient or an activation is the
// first.
TEST_F(BadInputTest, DivergenceIsNamed) {
  const std::string line =
      error_line("train", train_with({"train.learning_rate=1e30", "train.clip=0", "train.warmup=0",
                                      "train.eval_every=0"}));
  EXPECT_CONTAINS(line, "not finite; first tensor: ");
  EXPECT_CONTAINS(line, "train.learning_rate");
}
}  // namespace
}  // namespace weft
