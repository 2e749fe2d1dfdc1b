// SPDX-License-Identifier: MIT
// The model: gradients, causality, recompute, decoding, parameters.
#include "models/sparse_transformer.h"

#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "tests/models/model_testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace weft {
namespace {
class EachPattern : public testing::TestWithParam<PatternSpec> {};

INSTANTIATE_TEST_SUITE_P(Patterns, EachPattern, testing::ValuesIn(kPatternSpecs),
                         [](const auto& info) { return info.param.kind; });

TEST_P(EachPattern, Gradients) { check_model_gradients(small_config(GetParam()), 11, false); }

TEST(SparseTransformer, GradientsWithEveryOption) {
  Config config = small_config({"fixed", 6, 2, 2});
  config.model.qk_ratio = 0.5;
  config.model.dropout = 0.3;
  config.model.embedding_dropout = 0.2;
  config.model.activation = Activation::relu2;
  config.model.tied_output = true;
  config.model.final_norm = false;
  config.model.position_axes = {2, 3, 3};
  config.model.attention = {{"strided", 4, 1, 1}, {"local", 4, 1, 1}};
  config.train.recompute = Recompute::block;
  check_model_gradients(config, 11, true);
}

TEST(SparseTransformer, GradientsWithRotaryPositionsAndQkNorm) {
  Config config = rotary_config({"local", 5, 1, 1}, {2, 3, 3});
  config.model.qk_ratio = 2;
  config.model.attention = {{"strided", 4, 1, 1}, {"local", 4, 1, 1}};
  check_model_gradients(config, 11, true);
  config.model.positions = PositionCode::learned;
  config.train.recompute = Recompute::attention;
  check_model_gradients(config, 11, true);
}

TEST(SparseTransformer, GradientsWithCanon) {
  Config config = rotary_config({"local", 5, 1, 1});
  config.model.canon = true;
  for (const Recompute recompute : kEveryRecompute) {
    config.train.recompute = recompute;
    check_model_gradients(config, 11, true);
  }
}

TEST(SparseTransformer, GradientsWithUnet) {
  for (const int64_t layers : {1, 2, 3, 4}) {
    Config config = rotary_config({"local", 5, 1, 1});
    config.model.layers = layers;
    config.model.unet = true;
    for (const Recompute recompute : kEveryRecompute) {
      config.train.recompute = recompute;
      check_model_gradients(config, 11, true);
    }
  }
}

TEST(SparseTransformer, GradientsWithLearntScales) {
  Config config = rotary_config({"local", 5, 1, 1});
  config.model.qk_learnt = true;
  for (const Recompute recompute : kEveryRecompute) {
    config.train.recompute = recompute;
    check_model_gradients(config, 11, true);
  }
  config.model.canon = config.model.unet = true;
  check_model_gradients(config, 11, true);
}

// Token t changes no logits before row t + 1, and does change some after it.
TEST_P(EachPattern, IsCausal) {
  SmallModel small(small_config(GetParam()));
  const int64_t n = 18, vocab = 7, t = 7;
  Ctx ctx = small.engine.ctx();
  std::vector<double> values = small.engine.host(small.tokens(1, n));
  const auto logits = [&] {
    return small.engine.host(
        small.model->logits(ctx, small.engine.tensor({1, n}, values, DType::i32)));
  };
  const std::vector<double> before = logits();
  values[t] = values[t] == 0 ? 1 : 0;
  const std::vector<double> after = logits();
  const auto row = [&](const std::vector<double>& v, int64_t r) {
    return std::vector<double>(v.begin() + r * vocab, v.begin() + (r + 1) * vocab);
  };
  for (int64_t r = 0; r <= t; ++r) EXPECT_EQ(row(before, r), row(after, r)) << "row " << r;
  EXPECT_NE(row(before, t + 1), row(after, t + 1));
}

void check_recompute(Config config, const std::string& device, const std::vector<DType>& types) {
  config.model.dropout = 0.4;
  config.model.embedding_dropout = 0.1;
  for (const DType compute : types) {
    SCOPED_TRACE(name_of(compute));
    std::map<Recompute, std::vector<double>> results;
    for (const Recompute recompute : kEveryRecompute) {
      config.train.recompute = recompute;
      SmallModel small(config, compute, device);
      small.engine.set({.seed = 21, .draw = 2});
      const double loss = small.differentiate(small.tokens(3, 17), true);
      results[recompute] = small.engine.host(small.store.gradients());
      results[recompute].push_back(loss);
    }
    EXPECT_EQ(results[Recompute::none], results[Recompute::attention]);
    EXPECT_EQ(results[Recompute::none], results[Recompute::block]);
    EXPECT_GT(*std::max_element(results[Recompute::none].begin(), results[Recompute::none].end()),
              0);
  }
}

TEST_P(EachPattern, RecomputeGivesTheSameBits) {
  check_recompute(small_config(GetParam()), "cpu", {DType::f32, DType::bf16, DType::f16});
}

TEST(SparseTransformer, RecomputeGivesTheSameBitsWithRotaryPositions) {
  check_recompute(rotary_config({"fixed", 6, 2, 2}), "cpu", {DType::f32, DType::bf16});
}

// Two micro-batches add up to the batch.
TEST(SparseTransformer, GradientsAccumulate) {
  SmallModel small(small_config({"local", 5, 1, 1}), DType::f64);
  const int64_t n = 18;
  const std::vector<double> tokens = small.engine.host(small.tokens(2, n));
  small.differentiate(small.engine.tensor({2, n}, tokens, DType::i32));
  const std::vector<double> whole = small.engine.host(small.store.gradients());
  small.engine.set({.loss_gradient = 0.5});
  small.store.begin_step();
  for (const int64_t b : {0, 1}) {
    Tape tape;
    Ctx ctx = small.engine.ctx(&tape);
    const std::vector<double> half(tokens.begin() + b * n, tokens.begin() + (b + 1) * n);
    backward(ctx, mean(ctx, small.model->token_losses(
                                ctx, small.engine.tensor({1, n}, half, DType::i32))));
  }
  expect_near(small.engine.host(small.store.gradients()), whole, 1e-12, "accumulated gradients");
}

// What the backward pass says is complete does not change any more, and is told in every block.
TEST(SparseTransformer, GradientsAreCompleteWhenTheBackwardPassSaysSo) {
  for (const Recompute recompute : kEveryRecompute) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(str(text_of(recompute), tied ? ", tied output" : ""));
      Config config = small_config({"local", 5, 1, 1});
      config.model.layers = 3;
      config.model.dropout = 0.2;
      config.model.tied_output = tied;
      config.train.recompute = recompute;
      SmallModel small(config, DType::f64);
      const auto gradient = [&](std::size_t i) {
        return small.engine.host(small.store.gradients().slice(small.store.params()[i].offset,
                                                               {small.store.params()[i].size}));
      };
      std::vector<std::vector<double>> seen(small.store.params().size());
      std::vector<int32_t> told;
      const GradientsComplete complete = [&](Ctx&, int32_t first) {
        told.push_back(first);
        for (auto i = static_cast<std::size_t>(first); i < seen.size(); ++i)
          if (seen[i].empty()) seen[i] = gradient(i);
      };
      Tape tape;
      Ctx ctx = small.engine.ctx(&tape, true);
      ctx.complete = &complete;
      small.store.begin_step();
      backward(ctx, mean(ctx, small.model->token_losses(ctx, small.tokens(2, 18))));
      ASSERT_EQ(told.size(), 7u);
      EXPECT_TRUE(std::is_sorted(told.rbegin(), told.rend()));
      const auto name_of = [&](int32_t i) {
        return small.store.params()[static_cast<std::size_t>(i)].name;
      };
      EXPECT_EQ(name_of(told[2]), "blocks.1.mlp.down.bias");
      EXPECT_EQ(name_of(told[3]), "blocks.1.attention.proj.bias");
      EXPECT_EQ(name_of(told[6]), "blocks.0.attention_norm.weight");
      for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_EQ(seen[i].empty(), i < static_cast<std::size_t>(told[6]))
            << small.store.params()[i].name;
        if (!seen[i].empty()) {
          EXPECT_EQ(seen[i], gradient(i)) << small.store.params()[i].name;
        }
      }
    }
  }
}

// moved: tokens have places in any order.
void check_decode(const Config& config, int64_t batch, int64_t length, bool batch_invariant,
                  const std::string& device = "cpu", bool moved = false) {
  SmallModel small(config, DType::f32, device);
  Sequences tokens = small.tokens(batch, length);
  if (moved) {
    std::vector<double> places;
    for (int64_t i = 0; i < batch * length; ++i)
      places.push_back(static_cast<double>((5 * i + i / length) % config.model.context));
    tokens.positions = small.engine.tensor({batch, length}, places, DType::i32);
  }
  check_decoding(small, tokens, batch_invariant);
}

TEST_P(EachPattern, DecodesAsItTrains) {
  for (const int64_t batch : {1, 3}) check_decode(small_config(GetParam()), batch, 18, true);
  check_decode(small_config(GetParam()), 2, 11, false);
}

TEST(SparseTransformer, DecodesMixedPatternsAndHalfSizeQueries) {
  Config config = small_config({"fixed", 6, 2, 2});
  config.model.layers = 5;
  config.model.qk_ratio = 0.5;
  config.model.tied_output = true;
  config.model.attention = {{"strided", 4, 1, 1}, {"local", 4, 1, 1}, {"fixed", 6, 2, 2}};
  check_decode(config, 3, 17, true);
}

// Text with each kind of pattern, and an image whose sub-pixels are where they are, or moved.
void check_rotary_decode(const std::string& device, int64_t width) {
  std::vector<PatternSpec> specs = kPatternSpecs;
  specs.push_back(parse_pattern(
      "{kind: merged, of: [{kind: local, stride: 3}, {kind: strided, stride: 5}]}", "test"));
  Config config;
  for (const PatternSpec& spec : specs) {
    config = rotary_config(spec);
    config.model.width = width;
    check_decode(config, 3, 18, true, device);
  }
  config.model.position_axes = {2, 3, 3};
  for (const bool moved : {false, true}) check_decode(config, 3, 17, true, device, moved);
}

TEST(SparseTransformer, DecodesRotaryPositions) { check_rotary_decode("cpu", 16); }

// The logits of the last `texts` of a batch are the same bits as those of each alone.
void check_batch_invariance(const Config& config, const std::string& device, DType compute,
                            int64_t batch = 3, int64_t texts = 1) {
  SmallModel small(config, compute, device);
  const int64_t length = 12, vocab = 7;
  const std::vector<double> tokens = small.engine.host(small.tokens(batch, length));
  Ctx ctx = small.engine.ctx();
  ctx.batch_invariant = true;
  const auto all = small.model->make_cache(*small.engine.device, batch, length, batch);
  const auto one = small.model->make_cache(*small.engine.device, 1, length, batch);
  const auto part = [](const std::vector<double>& v, int64_t b, int64_t n) {
    return std::vector<double>(v.begin() + b * n, v.begin() + (b + 1) * n);
  };
  const Tensor all_tokens = small.engine.tensor({batch, length}, tokens, DType::i32);
  std::vector<std::vector<double>> together;
  for (int64_t t = 0; t < length; ++t)
    together.push_back(small.engine.host(small.model->decode(ctx, *all, all_tokens, t)));
  for (int64_t b = batch - texts; b < batch; ++b) {
    const Tensor one_tokens = small.engine.tensor({1, length}, part(tokens, b, length), DType::i32);
    for (int64_t t = 0; t < length; ++t)
      ASSERT_EQ(part(together[static_cast<std::size_t>(t)], b, vocab),
                small.engine.host(small.model->decode(ctx, *one, one_tokens, t)))
          << "text " << b << ", position " << t;
  }
}

TEST_P(EachPattern, DecodingDoesNotDependOnTheBatch) {
  check_batch_invariance(small_config(GetParam()), "cpu", DType::f32);
  check_batch_invariance(rotary_config(GetParam()), "cpu", DType::bf16);
}

TEST(SparseTransformer, DecodesRelu2AsItTrainsAndEachTextAlone) {
  Config config = small_config({"fixed", 6, 2, 2});
  config.model.activation = Activation::relu2;
  check_decode(config, 3, 18, true);
  check_batch_invariance(config, "cpu", DType::f32);
}

TEST(SparseTransformer, RefusesWrongTokensAndCaches) {
  SmallModel small(small_config({"all", 1, 1, 1}));
  Ctx ctx = small.engine.ctx();
  EXPECT_THROW(small.model->logits(ctx, small.tokens(1, 19)), Error);
  EXPECT_THROW(small.model->logits(ctx, ctx.empty({1, 4}, DType::f32)), Error);
  EXPECT_THROW(small.model->make_cache(*small.engine.device, 1, 19), Error);
  const auto cache = small.model->make_cache(*small.engine.device, 1, 10);
  EXPECT_THROW(small.model->decode(ctx, *cache, small.tokens(1, 10), 10), Error);
  EXPECT_THROW(small.model->decode(ctx, *cache, small.tokens(2, 10), 0), Error);
}

TEST(SparseTransformer, NamesOfParameters) {
  Config config = small_config({"all", 1, 1, 1});
  config.model.layers = 1;
  const auto device = make_device("cpu");
  ParameterStore store;
  make_model(config, store, *device);
  std::vector<std::string> names;
  for (const ParamInfo& p : store.params()) names.push_back(p.name);
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "token_embedding", "start", "position.0", "position.1", "blocks.0.attention_norm.weight",
          "blocks.0.attention_norm.bias", "blocks.0.attention.qkv.weight",
          "blocks.0.attention.qkv.bias", "blocks.0.attention.proj.weight",
          "blocks.0.attention.proj.bias", "blocks.0.mlp_norm.weight", "blocks.0.mlp_norm.bias",
          "blocks.0.mlp.up.weight", "blocks.0.mlp.up.bias", "blocks.0.mlp.down.weight",
          "blocks.0.mlp.down.bias", "final_norm.weight", "final_norm.bias", "output.weight"}));
  config.model.positions = PositionCode::rotary;  // the same without tables
  ParameterStore rotary;
  make_model(config, rotary, *device);
  std::erase_if(names, [](const std::string& name) { return name.starts_with("position."); });
  ASSERT_EQ(rotary.params().size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(rotary.params()[i].name, names[i]);
}

double init_std(const Config& config, const std::string& name) {
  const auto device = make_device("cpu");
  ParameterStore store;
  make_model(config, store, *device);
  for (const ParamInfo& p : store.params()) {
    if (p.name == name) return p.init.std;
  }
  ADD_FAILURE() << "no parameter " << name;
  return -1;
}

// Section 5.2 of the paper, with the gain read as a variance or as a standard deviation.
TEST(SparseTransformer, InitialValues) {
  Config config = small_config({"all", 1, 1, 1});  // width 16, MLP 32, 2 layers
  EXPECT_DOUBLE_EQ(init_std(config, "token_embedding"), 0.1);
  EXPECT_DOUBLE_EQ(init_std(config, "start"), 0.1);
  EXPECT_DOUBLE_EQ(init_std(config, "position.1"), 0.1);
  EXPECT_DOUBLE_EQ(init_std(config, "blocks.1.attention.qkv.weight"), std::sqrt(0.125 / 16));
  EXPECT_DOUBLE_EQ(init_std(config, "blocks.1.mlp.up.weight"), std::sqrt(0.125 / 16));
  EXPECT_DOUBLE_EQ(init_std(config, "blocks.1.attention.proj.weight"), std::sqrt(0.125 / 16) / 2);
  EXPECT_DOUBLE_EQ(init_std(config, "blocks.1.mlp.down.weight"), std::sqrt(0.125 / 32) / 2);
  EXPECT_DOUBLE_EQ(init_std(config, "output.weight"), 0);
  config.model.init.weight_rule = WeightRule::standard_deviation;
  EXPECT_DOUBLE_EQ(init_std(config, "blocks.1.attention.qkv.weight"), 0.125 / 4);
  EXPECT_DOUBLE_EQ(init_std(config, "blocks.1.attention.proj.weight"), 0.125 / 4 / 2);
}

#ifdef WEFT_CUDA
Config small_cuda_config(const PatternSpec& pattern) {
  Config config = small_config(pattern);
  config.model.width = 32;  // heads of 16
  return config;
}

TEST(CudaEngine, RecomputeGivesTheSameBits) {
  for (const PatternSpec& pattern : kPatternSpecs) {
    SCOPED_TRACE(pattern.kind);
    check_recompute(small_cuda_config(pattern), "cuda", {DType::f32, DType::bf16, DType::f16});
  }
  Config rotary = rotary_config({"fixed", 6, 2, 2});
  rotary.model.width = 32;
  check_recompute(rotary, "cuda", {DType::f32, DType::bf16, DType::f16});
}

TEST(CudaEngine, DecodesAsItTrains) {
  for (const PatternSpec& pattern : kPatternSpecs) {
    SCOPED_TRACE(pattern.kind);
    check_decode(small_cuda_config(pattern), 3, 18, true, "cuda");
    check_decode(small_cuda_config(pattern), 1, 11, false, "cuda");
  }
  check_rotary_decode("cuda", 32);
  Config config = small_cuda_config({"fixed", 6, 2, 2});
  config.model.activation = Activation::relu2;
  check_decode(config, 3, 18, true, "cuda");
}

TEST(CudaEngine, DecodingDoesNotDependOnTheBatch) {
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(compute));
    check_batch_invariance(small_cuda_config({"fixed", 6, 2, 2}), "cuda", compute);
  }
  // Sizes that one kernel takes through all blocks, in one group of thread blocks, two and many.
  for (Config config :
       {small_config({"fixed", 6, 2, 2}), rotary_config({"fixed", 6, 2, 2}, {2, 3, 3})}) {
    config.model.width = 128;
    config.model.heads = 2;
    for (const Activation activation : {Activation::gelu, Activation::relu2})
      for (const int64_t batch : {3, 23, 257})
        for (const DType compute : {DType::bf16, DType::f16}) {
          SCOPED_TRACE(str(value_text(config, "model.positions"), ", ", name_of(activation), ", ",
                           name_of(compute), ", batch ", batch));
          config.model.activation = activation;
          check_batch_invariance(config, "cuda", compute, batch);
        }
  }
}

// Decoded logits of `batch` texts beside those of a whole pass: the difference, of their size.
double decoding_error(SmallModel& small, int64_t batch, int64_t length) {
  const Tensor tokens = small.tokens(batch, length);
  const int64_t vocab = small.config.model.vocab;
  Ctx ctx = small.engine.ctx();
  const std::vector<double> want = small.engine.host(small.model->logits(ctx, tokens));
  const auto cache = small.model->make_cache(*small.engine.device, batch, length, batch);
  double difference = 0, size = 0;
  for (int64_t t = 0; t < length; ++t) {
    const std::vector<double> got = small.engine.host(small.model->decode(ctx, *cache, tokens, t));
    for (int64_t i = 0; i < batch * vocab; ++i) {
      const double expected =
          want[static_cast<std::size_t>((i / vocab * length + t) * vocab + i % vocab)];
      const double off = got[static_cast<std::size_t>(i)] - expected;
      difference += off * off, size += expected * expected;
    }
  }
  return std::sqrt(difference / size);
}

// Sizes that clusters of thread blocks take through all blocks.
TEST(CudaEngine, DecodesFewTextsFromPreparedWeights) {
  for (Config config :
       {small_config({"fixed", 6, 2, 2}), rotary_config({"fixed", 6, 2, 2}, {2, 3, 3})})
    for (const Activation activation : {Activation::gelu, Activation::relu2})
      for (const DType compute : {DType::bf16, DType::f16}) {
        SCOPED_TRACE(str(value_text(config, "model.positions"), ", ", name_of(activation), ", ",
                         name_of(compute)));
        config.model.width = 256;
        config.model.heads = 4;
        config.model.mlp_ratio = 4;
        config.model.activation = activation;
        SmallModel small(config, compute, "cuda");
        const auto is_prepared = [&](int64_t batch, int64_t texts) {
          const auto cache = small.model->make_cache(*small.engine.device, batch, 12, texts);
          return cache->prepared_bytes() > 0;
        };
        EXPECT_EQ(is_prepared(1, 1), small.engine.device->compute_capability == 90);
        EXPECT_EQ(is_prepared(1, 4), is_prepared(1, 1));
        EXPECT_FALSE(is_prepared(1, 5));
        EXPECT_FALSE(is_prepared(1, 0));
        EXPECT_LT(decoding_error(small, 3, 12), compute == DType::f16 ? 4e-3 : 3e-2);
        check_batch_invariance(config, "cuda", compute, 4, 4);
      }
}

TEST(CudaEngine, DecodesAThousandTextsAsEachAlone) {
  Config config = small_config({"fixed", 6, 2, 2});
  config.model.width = 128;
  config.model.heads = 2;
  for (const DType compute : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(compute));
    check_batch_invariance(config, "cuda", compute, 1000, 1000);
  }
}
#endif
}  // namespace
}  // namespace weft
