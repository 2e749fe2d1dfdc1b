// SPDX-License-Identifier: MIT
// `evaluate --heatmap` of a text, whose windows overlap: every token once.
#include "train/formats/heat_map.h"

#include "data/dataset.h"
#include "src/files/hdf5.h"
#include "tests/train/training.h"
#include "train/evaluation/evaluate_run.h"
#include "train/evaluation/evaluator.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <numbers>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(HeatMap, OfATextAndLossesHaveEveryTokenOnceUnderAMinimumContext) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 3000, 32);
  train(small_config(dir.path(), {"train.steps=2", "train.save_every=0"}),
        {.out = dir / "run", .device = "cpu"});
  EvaluateArguments a;
  a.checkpoint = dir / "run/latest.h5", a.device = "cpu", a.min_context = 40, a.batch = 2;
  a.losses = dir / "losses.h5";
  const auto map_of = std::make_shared<HeatMapExtension>();
  map_of->path = dir / "map.png";
  a.extensions = {map_of};
  std::ostringstream out, notes;
  Progress progress(notes, false);
  Processes alone;
  run_evaluate(a, alone, out, progress);

  const TokenDataset data(dir / "corpus.h5", "test", 32);
  const auto size = static_cast<std::size_t>(data.size());
  std::vector<int32_t> want(size);
  data.read(0, want);
  std::vector<float> nats(size);
  const Hdf5File file = Hdf5File::open(a.losses);
  ASSERT_EQ(file.shape_of("/losses"), (std::vector<int64_t>{data.size()}));
  ASSERT_EQ(file.shape_of("/tokens"), (std::vector<int64_t>{data.size()}));
  file.read("/losses", StoredType::f32, {data.size()}, nats.data());
  std::vector<uint16_t> kept(size);
  file.read("/tokens", StoredType::u16, {data.size()}, kept.data());
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), want.begin(), want.end()));
  const double sum = std::accumulate(nats.begin(), nats.end(), 0.0);
  EXPECT_NEAR(json_number(out.str(), "bits").value_or(0),
              sum / std::numbers::ln2 / static_cast<double>(size), 1e-5);

  HeatMap map({8, 8, 1});
  std::size_t at = 0;
  for (const EvalWindow& window : plan_windows(data.size(), 64, 40))
    for (int64_t t = window.scored; t < window.length; ++t)
      map.add(t, static_cast<double>(nats.at(at++)) / std::numbers::ln2);
  EXPECT_EQ(at, size);
  EXPECT_CONTAINS(notes.str(), map.text());
}

// Windows that overlap see tokens again; files have them once, at the place where they were scored.
TEST(HeatMap, TheProgramHasEachTokenOnce) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 6000, 32);
  train(small_config(dir.path(), {"train.steps=2"}), {.out = dir / "run", .device = "cpu"});
  Process process(dir, "evaluate",
                  {"--checkpoint", dir / "run/latest.h5", "--device", "cpu", "--split", "valid",
                   "--min-context", "40", "--losses", dir / "l.h5", "--heatmap", dir / "map.png"});
  ASSERT_EQ(process.wait(), 0) << process.err();
  const TokenDataset data(dir / "corpus.h5", "valid", 32);
  const std::vector<int64_t> shape{data.size()};
  std::vector<int32_t> tokens(static_cast<std::size_t>(data.size())), written(tokens.size());
  std::vector<float> nats(tokens.size());
  data.read(0, tokens);
  const Hdf5File file = Hdf5File::open(dir / "l.h5");
  file.read("/tokens", StoredType::i32, shape, written.data());
  file.read("/losses", StoredType::f32, shape, nats.data());
  EXPECT_EQ(written, tokens);
  HeatMap map({8, 8, 1});
  for (int64_t t = 0; t < data.size(); ++t) {
    // 64 of the first window, then 24 more a window at its places 40 to 63; the last one ends with
    // the split.
    int64_t end = 64;
    while (end <= t) end = std::min(end + 24, data.size());
    map.add(64 - (end - t), nats[static_cast<std::size_t>(t)] / std::numbers::ln2);
  }
  EXPECT_CONTAINS(process.err(), map.text());
}
}  // namespace
}  // namespace weft
