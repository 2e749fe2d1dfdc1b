// SPDX-License-Identifier: MIT
// Decoding against the forward pass of training, for every causal pattern; what the caches hold.
#include "models/decoding.h"

#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/patterns/cache_rows.h"
#include "tests/models/model_testing.h"
#include "tests/src/patterns/drawings.h"
#include "tests/src/patterns/pattern_testing.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
// A model of two layers with this pattern and heads of 8 numbers.
Config config_for(const PatternSpec& spec, int heads, int64_t context) {
  Config c = small_config(spec);
  c.model.heads = heads;
  c.model.width = 8 * heads;
  c.model.mlp_ratio = 1;
  c.model.context = context;
  c.model.position_axes = {(context + 4) / 5, 5};
  return c;
}

void check_drawing(const Drawing& d, const std::string& device) {
  const auto pattern = make_pattern(d.spec, d.heads);
  if (!pattern->causal()) return;
  const int64_t made_for = pattern->lengths().keys;
  const int64_t context = made_for > 0 ? std::min<int64_t>(made_for, 37) : 37;
  SmallModel small(config_for(d.spec, d.heads, context), DType::f32, device);
  for (const int64_t batch : {1, 7})
    for (const int64_t length : {1, 2, 3, 11, 37})
      if (length <= context) check_decoding(small, batch, length);
}

TEST(Decoding, GivesTheLogitsOfTraining) {
  for (const Drawing& d : drawings()) {
    SCOPED_TRACE(d.file);
    check_drawing(d, "cpu");
  }
}

TEST(Decoding, GivesTheLogitsOfTrainingForRandomPatterns) {
  std::mt19937 random(17);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const RandomCase c = random_case(random);
    if (!c.pattern->causal() || c.n > 130) continue;
    SCOPED_TRACE(c.text());
    SmallModel small(config_for(c.spec, c.heads, c.n));
    check_decoding(small, 1 + repeat % 2, c.n);
  }
}

// Heads with lists of their own, in rows that lie one after the other.
TEST(CacheLayout, PacksTheRowsOfHeads) {
  const std::shared_ptr<const AttentionPattern> pattern = make_pattern({"fixed", 6, 2, 3}, 6);
  const CacheLayout layout(pattern, 6, 20, false);
  int64_t sum = 0;
  for (int head = 0; head < 6; ++head) {
    EXPECT_EQ(layout.rows(head), cache_rows(*pattern, head, 20).rows) << head;
    sum += layout.rows(head);
  }
  EXPECT_EQ(layout.rows(), sum);
  std::vector<int32_t> fixed, step;
  layout.append_fixed(fixed);
  EXPECT_EQ(static_cast<int64_t>(fixed.size()), layout.fixed_words());
  // Each position finds what earlier ones left in the rows of its head.
  std::vector<std::vector<int64_t>> held(6,
                                         std::vector<int64_t>(static_cast<std::size_t>(sum), -1));
  for (int64_t t = 0; t < 20; ++t) {
    step.clear();
    layout.append_step(t, step);
    EXPECT_LE(static_cast<int64_t>(step.size()), layout.step_words());
    const int32_t *row = step.data() + layout.groups() + 1, *keys = row + layout.heads();
    for (int head = 0; head < 6; ++head) {
      ASSERT_GE(row[head], fixed[6 + head]);
      ASSERT_LT(row[head], fixed[6 + head] + layout.rows(head));
      held[head][row[head]] = t;
      std::vector<int32_t> expected;
      pattern->keys_of(head, t, t + 1, expected);
      const int group = fixed[head];
      ASSERT_EQ(step[group + 1] - step[group], static_cast<int>(expected.size()));
      for (std::size_t k = 0; k < expected.size(); ++k)
        ASSERT_EQ(held[head][fixed[6 + head] + keys[step[group] + k]], expected[k])
            << t << ", head " << head;
    }
  }
}

TEST(DecodeCache, SaysWhatItHolds) {
  Config config = config_for({"local", 4}, 2, 30);
  config.model.layers = 3;
  config.model.attention = {{"local", 4}, {"fixed", 6, 2, 2}};
  SmallModel small(config);
  const auto cache = small.model->make_cache(*small.engine.device, 5, 21);
  const std::vector<CacheUse> use = cache->use();
  ASSERT_EQ(use.size(), 2u);
  EXPECT_EQ(use[0].layers, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(use[0].rows, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(use[0].dense_rows, 21);
  EXPECT_EQ(use[0].bytes, 2u * 5 * (4 + 4) * (8 + 8) * 4);
  EXPECT_EQ(use[0].dense_bytes, 2u * 5 * (21 + 21) * (8 + 8) * 4);
  EXPECT_EQ(use[1].layers, (std::vector<int64_t>{1}));
  EXPECT_EQ(use[1].rows.size(), 2u);
  EXPECT_LT(use[1].bytes, use[1].dense_bytes);
  EXPECT_GE(cache->bytes(), use[0].bytes + use[1].bytes);
  EXPECT_LT(cache->bytes(), use[0].bytes + use[1].bytes + 1000);  // lists of rows
  EXPECT_EQ(cache->prepared_bytes(), 0u);
}

TEST(DecodeCache, CountsKeysOfTheirOwnSize) {
  Config config = config_for({"local", 4}, 2, 30);
  config.model.qk_ratio = 2;  // keys of 16, values of 8
  SmallModel small(config);
  const std::vector<CacheUse> use = small.model->make_cache(*small.engine.device, 5, 21)->use();
  const auto layers = static_cast<std::size_t>(config.model.layers);
  EXPECT_EQ(use[0].bytes, layers * 5 * (4 + 4) * (16 + 8) * 4);
  EXPECT_EQ(use[0].dense_bytes, layers * 5 * (21 + 21) * (16 + 8) * 4);
}

TEST(SparseTransformer, RefusesPatternsThatSeeTheFuture) {
  SmallModel small(
      config_for(parse_pattern("{kind: local, stride: 4, causal: false}", "test"), 2, 12));
  Ctx ctx = small.engine.ctx();
  EXPECT_CONTAINS(error_of([&] { small.model->logits(ctx, small.tokens(1, 9)); }),
                  "layer 0: local(stride 4");
  EXPECT_CONTAINS(error_of([&] { small.model->make_cache(*small.engine.device, 1, 9); }), "causal");
}

#ifdef WEFT_CUDA
TEST(CudaDecoding, GivesTheLogitsOfTraining) {
  for (const Drawing& d : drawings()) {
    SCOPED_TRACE(d.file);
    check_drawing(d, "cuda");
  }
}
#endif
}  // namespace
}  // namespace weft
