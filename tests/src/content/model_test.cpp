// SPDX-License-Identifier: MIT
// Models where content decides what a head sees: causality, decoding, recompute, documents, memory.
#include "models/sparse_transformer.h"
#include "src/config/read_config.h"
#include "tests/models/model_testing.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
const std::vector<std::string> kKinds = {
    "{kind: routing, clusters: 3, window: 6}", "{kind: lsh, rounds: 2, window: 5, buckets: 4}",
    "{kind: topk_blocks, block: 64, blocks: 2}",
    "{kind: heads, of: [{kind: lsh, rounds: 3, window: 4, buckets: 9}, {kind: local, stride: 7}]}",
    "{kind: heads, of: [{kind: routing, clusters: 4, window: 70}, {kind: topk_blocks, block: 64, "
    "blocks: "
    "3}]}"};

Config content_config(const std::string& pattern, bool rotary = true, int64_t context = 330) {
  const PatternSpec spec = parse_pattern(pattern, "test");
  Config c = rotary ? rotary_config(spec, {context}) : small_config(spec);
  c.model.context = context;
  c.model.position_axes = {context};
  c.model.mlp_ratio = 1;
  return c;
}

// All tokens behind row i change: labels, choices and sets of keys up to it stay, and with them its
// logits. Rows of a label move with the sizes of other labels, and with them the order of sums.
TEST(ContentModel, NoRowDependsOnLaterTokens) {
  for (const std::string& pattern : kKinds)
    for (const bool rotary : {false, true}) {
      SCOPED_TRACE(pattern);
      SmallModel small(content_config(pattern, rotary), DType::f64);
      const int64_t n = 330, vocab = small.config.model.vocab;
      Ctx ctx = small.engine.ctx();
      const std::vector<double> values = small.engine.host(small.tokens(1, n));
      const auto logits = [&](const std::vector<double>& tokens) {
        return small.engine.host(
            small.model->logits(ctx, small.engine.tensor({1, n}, tokens, DType::i32)));
      };
      const std::vector<double> before = logits(values);
      for (const int64_t i : {0, 1, 63, 64, 100, 190, 257, 328, 329}) {
        for (unsigned seed = 1; seed < 3; ++seed) {
          std::mt19937 random(seed);
          std::vector<double> changed = values;
          for (int64_t t = i; t < n; ++t)
            changed[static_cast<std::size_t>(t)] = static_cast<double>(random() % 7);
          const std::vector<double> after = logits(changed);
          const auto rows = static_cast<std::ptrdiff_t>((i + 1) * vocab);
          expect_near({after.begin(), after.begin() + rows},
                      {before.begin(), before.begin() + rows}, 1e-10, str("rows up to ", i));
          EXPECT_TRUE(i > 300 || before != after);
        }
      }
    }
}

TEST(ContentModel, DecodingSeesWhatTheForwardPassSaw) {
  for (const std::string& pattern : kKinds) {
    SCOPED_TRACE(pattern);
    SmallModel small(content_config(pattern));
    for (const int64_t length : {1, 2, 65, 200}) check_decoding(small, 2, length);
  }
}

// A second text in the same cache begins afresh.
TEST(ContentModel, ACacheServesTextAfterText) {
  for (const std::string& pattern : kKinds) {
    SmallModel small(content_config(pattern));
    Ctx ctx = small.engine.ctx();
    const auto cache = small.model->make_cache(*small.engine.device, 1, 300);
    std::vector<double> last[2];
    for (const unsigned seed : {1, 2, 1})
      for (int64_t t = 0; t < 300; ++t) {
        const Tensor logits = small.model->decode(ctx, *cache, small.tokens(1, 300, seed), t);
        if (t < 299) continue;
        std::vector<double>& known = last[seed - 1];
        EXPECT_TRUE(known.empty() || known == small.engine.host(logits)) << pattern;
        known = small.engine.host(logits);
      }
  }
}

TEST(ContentModel, Gradients) {
  for (const std::size_t kind : {0, 1, 4}) {
    SCOPED_TRACE(kKinds[kind]);
    check_model_gradients(content_config(kKinds[kind]), kind == 4 ? 135 : 31, true, 1e-6, 1e-5);
  }
}

TEST(ContentModel, RecomputeAndMicroBatchesGiveTheSame) {
  for (const std::string& pattern : kKinds) {
    SCOPED_TRACE(pattern);
    std::map<Recompute, std::vector<double>> results;
    for (const Recompute recompute : kEveryRecompute) {
      Config config = content_config(pattern);
      config.train.recompute = recompute;
      config.model.dropout = 0.3;
      SmallModel small(config, DType::bf16);
      small.engine.set({.seed = 21, .draw = 2});
      small.differentiate(small.tokens(3, 140), true);
      results[recompute] = small.engine.host(small.store.gradients());
    }
    EXPECT_EQ(results[Recompute::none], results[Recompute::attention]);
    EXPECT_EQ(results[Recompute::none], results[Recompute::block]);
  }
}

// Centroids are one row for all sequences of an update, whatever its parts.
TEST(ContentModel, CentroidsHaveNoDecayAndAGradient) {
  SmallModel small(content_config(kKinds[0]));
  small.differentiate(small.tokens(2, 100), true);
  const std::vector<double> gradients = small.engine.host(small.store.gradients());
  int found = 0;
  for (const ParamInfo& p : small.store.params()) {
    if (p.name.find("attention.centroids.0") == std::string::npos) continue;
    ++found;
    EXPECT_FALSE(p.decay);
    EXPECT_EQ(p.kind, ParamKind::wide);
    EXPECT_EQ(p.size, 2 * 3 * 8);
    const auto first = gradients.begin() + p.offset;
    EXPECT_GT(*std::max_element(first, first + p.size), 0);
    EXPECT_LT(*std::max_element(first, first + p.size), 1e-3);
  }
  EXPECT_EQ(found, 2);
}

// Evaluation repeats itself; in training hashes differ from update to update.
TEST(ContentModel, EvaluationDoesNotDependOnTheUpdate) {
  SmallModel small(content_config(kKinds[1]));
  const Tensor tokens = small.tokens(2, 200);
  std::vector<double> evaluated, trained;
  for (const uint64_t draw : {1, 2}) {
    small.engine.set({.seed = 3, .draw = draw});
    evaluated.push_back(small.loss(tokens));
    trained.push_back(small.loss(tokens, true));
  }
  EXPECT_EQ(evaluated[0], evaluated[1]);
  EXPECT_NE(trained[0], trained[1]);
}

#ifdef WEFT_CUDA
TEST(CudaContentModel, DecodingSeesWhatTheForwardPassSaw) {
  for (const std::string& pattern : kKinds) {
    SCOPED_TRACE(pattern);
    SmallModel small(content_config(pattern), DType::f32, "cuda");
    for (const int64_t length : {1, 2, 65, 200}) check_decoding(small, 2, length);
  }
}

TEST(CudaContentModel, RecomputeGivesTheSame) {
  for (const std::string& pattern : kKinds) {
    std::map<Recompute, std::vector<double>> results;
    for (const Recompute recompute : kEveryRecompute) {
      Config config = content_config(pattern);
      config.train.recompute = recompute;
      SmallModel small(config, DType::bf16, "cuda");
      small.differentiate(small.tokens(3, 140), true);
      results[recompute] = small.engine.host(small.store.gradients());
    }
    EXPECT_EQ(results[Recompute::none], results[Recompute::attention]) << pattern;
    EXPECT_EQ(results[Recompute::none], results[Recompute::block]) << pattern;
  }
}
#endif

TEST(ContentModel, RefusesDocuments) {
  for (const std::string& kind : kKinds) {
    Config config = content_config(kind);
    config.data.separator = 6;
    EXPECT_CONTAINS(error_of([&] { check_config(config); }), "takes no documents");
  }
}
}  // namespace
}  // namespace weft
