// SPDX-License-Identifier: MIT
// metrics.jsonl, and which configs count as the same run.
#include "train/trainer/run_folder.h"

#include "src/config/fields.h"
#include "src/config/write_config.h"
#include "src/files/files.h"
#include "tests/src/files/failing_calls.h"
#include "tests/train/training.h"
#include "train/program/progress.h"
#include "train/trainer/report.h"

#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <sys/syscall.h>
#include <type_traits>
#include <variant>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
StepMetrics metrics_of(int64_t step) {
  return {
      .step = step,
      .loss = std::log(2.0),
      .lr = 1e-3,
      .grad_norm = 0.5,
      .tokens_per_s = 1000,
      .mfu = 0.25,
      .context = 64,
      .elapsed_s = 2.0 * static_cast<double>(step),
  };
}

TEST(Metrics, AreOneObjectWithTheNamedKeys) {
  StepMetrics m = metrics_of(3);
  EXPECT_EQ(to_json(m),
            "{\"step\": 3, \"loss\": 0.693147181, \"bits\": 1, \"lr\": 0.001, \"grad_norm\": 0.5, "
            "\"tokens_per_s\": 1000, \"mfu\": 0.25, \"context\": 64, \"elapsed_s\": 6}");
  m.valid_bits = 1.25;
  m.loss_scale = 65536;
  m.grad_norm = NAN;
  EXPECT_EQ(json_number(to_json(m), "valid_bits"), 1.25);
  EXPECT_EQ(json_number(to_json(m), "loss_scale"), 65536);
  EXPECT_EQ(json_number(to_json(m), "grad_norm"), std::nullopt);
  EXPECT_CONTAINS(to_json(m), "\"grad_norm\": null");
  EXPECT_EQ(json_number(to_json(m), "no"), std::nullopt);
}

TEST(Metrics, AreCutAtTheResumedStep) {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  {
    MetricsLog log(path, "", 0);
    EXPECT_EQ(log.elapsed_s(0, 100), 0);
    for (const int64_t step : {1, 5, 10}) log.append(metrics_of(step));
  }
  write_file(path, read_file(path) + "{\"step\": 7, \"lo");  // killed while writing
  MetricsLog log(path, path, 8);
  EXPECT_EQ(metric(path, "step"), (std::vector<double>{1, 5}));
  EXPECT_DOUBLE_EQ(log.elapsed_s(8, 500), 10 + 3 * 500 / 1000.0);
  log.append(metrics_of(9));
  EXPECT_EQ(metric(path, "step"), (std::vector<double>{1, 5, 9}));
  const MetricsLog fresh(path, path, 0);
  EXPECT_EQ(read_file(path), "");
}

TEST(RunFolder, NamesTheFirstKeyThatDecides) {
  const TempDir dir;
  const Config base = small_config(dir.path());
  const auto difference = [&](const std::string& set) {
    return deciding_difference(base, small_config(dir.path(), {set}));
  };
  for (const char* free : {"train.steps=99", "train.log_every=1", "train.eval_every=3",
                           "train.save_every=1", "train.keep=1", "train.graph=false",
                           "train.recompute=block", "name=other", "data.path=elsewhere/corpus.h5"})
    EXPECT_EQ(difference(free), "") << free;
  EXPECT_EQ(difference("train.batch=8"), "train.batch: 4 in the checkpoint, 8 now");
  for (const char* key :
       {"seed=9", "precision=bf16", "model.dropout=0.2", "model.init.token_std=0.5",
        "train.learning_rate=1", "train.beta2=0.9", "data.path=other.h5"}) {
    const std::string set = key;
    EXPECT_CONTAINS(difference(set), set.substr(0, set.find('=')));
  }
  EXPECT_CONTAINS(
      difference("model.attention=[{kind: local, stride: 8}, {kind: strided, stride: 16}]"),
      "model.attention");
  EXPECT_CONTAINS(difference("model.attention=[{kind: local, stride: 8}]"), "model.attention");
  EXPECT_CONTAINS(difference("train.context_schedule=[[0, 32], [3, 64]]"),
                  "train.context_schedule");
}

struct Perturb {  // to another value
  const Field& field;

  void operator()(const std::shared_ptr<const Enumerated>& value) const {
    value->set_name(value->name() == field.choices[0] ? field.choices[1] : field.choices[0]);
  }

  template <class T>
  void operator()(T* value) const {
    if constexpr (std::is_same_v<T, std::string>) {
      *value += "x";
    } else if constexpr (std::is_same_v<T, bool>) {
      *value = !*value;
    } else if constexpr (std::is_arithmetic_v<T>) {
      *value += 1;
    } else {
      value->emplace_back();
    }
  }
};

// The table of keys, the check, its error and the documents say the same of every key.
TEST(RunFolder, EachKeyHasOneRule) {
  const std::set<std::string> free{"name",
                                   "train.recompute",
                                   "train.graph",
                                   "train.log_every",
                                   "train.eval_every",
                                   "train.save_every",
                                   "train.eval_tokens",
                                   "train.keep"},
      asked{"train.accumulation", "train.reduce_dtype", "train.bucket_mb", "train.shard_optimizer"},
      told{"train.steps"};
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  Config base = small_config(dir.path());
  const std::string documented = to_yaml(base, true);
  int keys = 0;
  const auto check = [&](const std::string& key, const Config& other) {
    SCOPED_TRACE(key);
    const bool may = free.count(key) + told.count(key) > 0, must_ask = asked.count(key) > 0;
    const std::string refused = deciding_difference(base, other),
                      allowed = deciding_difference(base, other, "*");
    EXPECT_EQ(refused.empty(), may) << refused;
    EXPECT_EQ(allowed.empty(), may || must_ask) << allowed;
    EXPECT_EQ(deciding_difference(base, other, key).empty(), may || must_ask) << "asked for alone";
    if (!may) {
      EXPECT_EQ(refused.find(key + ": "), 0u) << refused;
    }
    EXPECT_EQ(refused.find("--allow-changes") != std::string::npos, must_ask);
    EXPECT_EQ(documented.substr(0, documented.find("\nname:")).find(key) != std::string::npos,
              may || must_ask);
    ++keys;
  };
  for_each_field(base, [&](const Field& field) {
    Config other = base;
    for_each_field(other, [&](const Field& f) {
      if (f.key == field.key) std::visit(Perturb{f}, f.value);
    });
    check(field.key, other);
  });
  EXPECT_GT(keys, 60);
}

TEST(RunFolder, BelongsToOneTrainerAtATime) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const Config config = small_config(dir.path(), {"train.steps=2", "train.eval_every=0"});
  const TrainOptions options{.out = dir / "run", .device = "cpu"};
  const std::string in_use =
      str(dir / "run", " is in use by another train (", host_name(), ", pid ", getpid(),
          "): wait for its end, or choose another folder with --out");
  {
    RunFolder owner(config, dir / "run", std::nullopt);
    EXPECT_EQ(owner.lock(), "") << "no folder yet";
    EXPECT_FALSE(fs::exists(dir / "run"));
    EXPECT_EQ(owner.create(config), "");
    EXPECT_EQ(error_of([&] { train(config, options); }), in_use);
    EXPECT_EQ(dir.names(), (std::vector<std::string>{"corpus.h5", "run"}));
    EXPECT_FALSE(fs::exists(dir / "run/metrics.jsonl"));
  }
  train(config, options);
  EXPECT_EQ(read_file(dir / "run/lock"), str(host_name(), ", pid ", getpid()));
  TrainOptions resume = options;
  resume.resume = "";
  RunFolder owner(config, dir / "run", "");
  EXPECT_EQ(owner.lock(), "");
  EXPECT_EQ(error_of([&] { train(config, resume); }), in_use);
}

// Two that start at the same time: the second one finds what the first one left.
TEST(RunFolder, ARunThatEndedMeanwhileIsSeen) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  const Config config = small_config(dir.path(), {"train.steps=2", "train.eval_every=0"});
  RunFolder late(config, dir / "run", std::nullopt);
  train(config, {.out = dir / "run", .device = "cpu"});
  EXPECT_CONTAINS(error_of([&] { late.create(config); }), "holds a run already (latest.h5)");
}

TEST(RunFolder, WarnsWhereThereAreNoLocks) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  std::string text;
  with_failing_calls({SYS_flock}, ENOLCK, [&] {
    text =
        train(small_config(dir.path(), {"train.steps=2"}), {.out = dir / "run", .device = "cpu"});
  });
  EXPECT_CONTAINS(text,
                  "warning: " + (dir / "run/lock") +
                      ": this file system has no locks (No locks available): nothing keeps another "
                      "train out of this folder\n");
  EXPECT_CONTAINS(text, "finished 2 steps");
}

TEST(RunFolder, SaysWhatAChangeChanges) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  train(small_config(dir.path(), {"train.steps=3"}), {.out = dir / "run", .device = "cpu"});
  const Config other = small_config(dir.path(), {"train.steps=5", "train.accumulation=2"});
  const TrainOptions resume{.resume = "", .out = dir / "run", .device = "cpu"};
  const std::string error = error_of([&] { train(other, resume); });
  EXPECT_CONTAINS(
      error,
      "train.accumulation: 1 in the checkpoint, 2 now (gradients are added up in another "
      "order; --allow-changes lets it differ)");
  for (const char* key :
       {"train.steps", "train.log_every", "train.graph",
        "with --allow-changes also "
        "train.accumulation, train.reduce_dtype, train.bucket_mb, train.shard_optimizer"})
    EXPECT_CONTAINS(error, key);
  TrainOptions asked = resume;
  asked.allow_changes = true;
  const std::string text = train(other, asked);
  EXPECT_CONTAINS(text, "changed     train.steps from 3 to 5: learning rates follow the schedule");
  EXPECT_CONTAINS(
      text, "changed     train.accumulation from 1 to 2: gradients are added up in another order");
}

// A resumed run would go on without them, and replace them.
TEST(Metrics, ThatCannotBeReadAreNotLost) {
  TempDir dir;
  std::filesystem::create_directory(dir / "metrics.jsonl");
  EXPECT_CONTAINS(error_of([&] { MetricsLog(dir / "out.jsonl", dir / "metrics.jsonl", 7); }),
                  "is a folder");
  EXPECT_FALSE(std::filesystem::exists(dir / "out.jsonl"));
  EXPECT_EQ(error_of([&] { MetricsLog(dir / "out.jsonl", dir / "none.jsonl", 7); }), "");
}

TEST(Metrics, AnEvaluationThatWasGivenUpIsCompleted) {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  StepMetrics m = metrics_of(5);
  m.valid_bits = NAN;
  MetricsLog(path, "", 0).append(m);
  EXPECT_FALSE(MetricsLog(path, path, 7).lacks_evaluation()) << "an older line";
  MetricsLog log(path, path, 5);
  ASSERT_TRUE(log.lacks_evaluation());
  EXPECT_DOUBLE_EQ(log.elapsed_s(5, 100), 10);
  log.append_evaluation({.valid_bits = 1.5, .valid_tokens = 20});
  m.valid_bits = 1.5;
  m.valid_tokens = 20;
  EXPECT_EQ(read_file(path), to_json(m) + "\n");
  EXPECT_FALSE(MetricsLog(path, path, 5).lacks_evaluation());
}

TEST(Report, ALongRunIsWarnedOf) {
  const TempDir dir;
  const Config config = small_config(dir.path());  // 20 steps of 256 tokens
  StepMetrics m = metrics_of(10);
  EXPECT_EQ(long_run_warning(m, config, false), "");
  m.tokens_per_s = 0.02;
  EXPECT_EQ(long_run_warning(m, config, false),
            "warning: 1.5 days left at this rate; tiny.yaml is for a CPU, novels_12l.yaml and "
            "larger ones are "
            "for a GPU. Ctrl-C saves and stops");
  EXPECT_CONTAINS(long_run_warning(m, config, true), "novels_12l_minute.yaml");
}

TEST(Progress, WritesNumbersForPeople) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(950), "950");
  EXPECT_EQ(count_text(1000), "1.00k");
  EXPECT_EQ(count_text(48123), "48.1k");
  EXPECT_EQ(count_text(999999), "1.00M");
  EXPECT_EQ(duration_text(7), "0:07");
  EXPECT_EQ(duration_text(3599.6), "1:00:00");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(NAN), "?");
  Laps laps;
  for (const char* part : {"device", "data", "weights"}) laps.lap(part);
  EXPECT_EQ(laps.text(), "device 0.00, data 0.00, weights 0.00");
  Laps thirds;  // rounded one by one they would be 1, 1 and 1 of 4
  for (const char* part : {"a", "b", "c"}) thirds.add(part, 4.0 / 3);
  EXPECT_EQ(thirds.durations(), "a 0:01, b 0:02, c 0:01");
  thirds.add("a", 60);
  EXPECT_EQ(thirds.durations(), "a 1:01, b 0:02, c 0:01");
  EXPECT_DOUBLE_EQ(thirds.of("a"), 60 + 4.0 / 3);
  EXPECT_DOUBLE_EQ(thirds.last(), 64);
  EXPECT_EQ(evaluation_text({.valid_bits = 2}), "  valid 2.0000");
  EXPECT_EQ(evaluation_text({.valid_bits = 2, .valid_bits_ema = 1.5}),
            "  valid 2.0000  valid ema 1.5000");
  EXPECT_EQ(evaluation_text({}), "");
}

TEST(Progress, PassingLinesAreForTerminals) {
  std::ostringstream pipe, terminal;
  for (std::ostringstream* out : {&pipe, &terminal}) {
    Progress progress(*out, out == &terminal);
    progress.passing("step 1");
    progress.line("done");
  }
  EXPECT_EQ(pipe.str(), "done\n");
  EXPECT_EQ(terminal.str(), "\r\033[Kstep 1\r\033[Kdone\n");
}
}  // namespace
}  // namespace weft
