// SPDX-License-Identifier: MIT
// metrics.jsonl, and which configs count as the same run.
#include "train/trainer/run_folder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/training.h"
#include "train/trainer/metrics.h"

namespace weft {
namespace {

StepMetrics metrics_of(std::int64_t step) {
  return {.step = step,
          .loss = std::log(2.0),
          .lr = 1e-3,
          .grad_norm = 0.5,
          .tokens_per_s = 1000,
          .context = 64,
          .elapsed_s = 2.0 * static_cast<double>(step)};
}

TEST(Metrics, AreOneObjectWithTheNamedKeys) {
  StepMetrics m = metrics_of(3);
  EXPECT_EQ(to_json(m),
            "{\"step\": 3, \"loss\": 0.693147181, \"bits\": 1, \"lr\": 0.001, \"grad_norm\": 0.5, "
            "\"tokens_per_s\": 1000, \"context\": 64, \"elapsed_s\": 6}");
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
    for (const std::int64_t step : {1, 5, 10}) log.append(metrics_of(step));
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
  for (const char* free :
       {"train.steps=99", "train.log_every=1", "train.eval_every=3", "train.save_every=1", "train.keep=1",
        "train.graph=false", "train.recompute=block", "name=other", "data.path=elsewhere/corpus.h5"})
    EXPECT_EQ(difference(free), "") << free;
  EXPECT_EQ(difference("train.batch=8"), "train.batch: 4 in the checkpoint, 8 now");
  for (const char* key : {"seed=9", "precision=bf16", "model.dropout=0.2", "model.init.token_std=0.5",
                          "train.learning_rate=1", "train.beta2=0.9", "data.path=other.h5"}) {
    const std::string set = key;
    EXPECT_CONTAINS(difference(set), set.substr(0, set.find('=')));
  }
  EXPECT_CONTAINS(difference("model.attention=[{kind: local, stride: 8}, {kind: strided, stride: 16}]"),
                  "model.attention");
  EXPECT_CONTAINS(difference("model.attention=[{kind: local, stride: 8}]"), "model.attention");
  EXPECT_CONTAINS(difference("train.context_schedule=[[0, 32], [3, 64]]"), "train.context_schedule");
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
