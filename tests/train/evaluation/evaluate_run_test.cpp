// SPDX-License-Identifier: MIT
// What `evaluate` writes of a text when windows overlap: every token once.
#include "train/evaluation/evaluate_run.h"

#include "data/dataset.h"
#include "src/files/hdf5.h"
#include "tests/train/training.h"
#include "train/evaluation/evaluator.h"
#include "train/trainer/run_folder.h"

#include <algorithm>
#include <cstddef>
#include <numbers>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
TEST(EvaluateText, LossesHaveEveryTokenOnceUnderAMinimumContext) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 3000, 32);
  train(small_config(dir.path(), {"train.steps=2", "train.save_every=0"}),
        {.out = dir / "run", .device = "cpu"});
  EvaluateArguments a;
  a.checkpoint = dir / "run/latest.h5", a.device = "cpu", a.min_context = 40, a.batch = 2;
  a.losses = dir / "losses.h5";
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
}

// Tokens beyond 16 bits all the way: data, training, losses, and what a byte costs.
TEST(EvaluateText, TokensOfALargeVocabularyHaveBitsPerByte) {
  const TempDir dir;
  std::vector<uint32_t> tokens(1000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = i % 2 == 0 ? 69'999 : 5;
  write_token_file(dir / "corpus.h5", tokens, 70'000, {0.6, 0.2, 0.2}, "", {}, {{"bytes", 4000}});
  const std::string said =
      train(small_config(dir.path(), {"model.vocab=70000", "model.layers=1", "model.width=16",
                                      "model.heads=2", "train.steps=8", "train.batch=2",
                                      "train.learning_rate=1e-2", "train.warmup=0"}),
            {.out = dir / "run", .device = "cpu"});
  EXPECT_CONTAINS(said, "bits are per token (4.000 bytes)");
  EvaluateArguments a;
  a.checkpoint = dir / "run/latest.h5", a.device = "cpu", a.losses = dir / "losses.h5";
  std::ostringstream out, notes;
  Progress progress(notes, false);
  Processes alone;
  run_evaluate(a, alone, out, progress);
  const double bits = json_number(out.str(), "bits").value_or(0);
  EXPECT_GT(bits, 0);
  EXPECT_LT(bits, 15);  // the uniform guess: 16.1
  EXPECT_NEAR(json_number(out.str(), "bits_per_byte").value_or(0), bits / 4, 1e-6);
  EXPECT_CONTAINS(notes.str(), " bits per token, ");
  EXPECT_CONTAINS(notes.str(), " bits per byte over 200 tokens");
  std::vector<uint32_t> kept(200);
  Hdf5File::open(a.losses).read("/tokens", StoredType::u32, {200}, kept.data());
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), tokens.begin() + 800));
}
}  // namespace
}  // namespace weft
