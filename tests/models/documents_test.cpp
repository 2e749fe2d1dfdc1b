// SPDX-License-Identifier: MIT
// Packed documents (data.separator): each is computed as if it were alone.
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "tests/cases/compare.h"
#include "tests/models/model_testing.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr int32_t kSeparator = 6;

const std::vector<std::string> kPatterns = {
    "{kind: all}",
    "{kind: local, stride: 4}",
    "{kind: strided, stride: 3}",
    "{kind: fixed, stride: 3, c: 1}",  // documents of multiples of 3: blocks lie alike
    "{kind: merged, of: [{kind: strided, stride: 3}, {kind: local, stride: 3}]}",
    "{kind: heads, of: [{kind: local, stride: 5}, {kind: strided, stride: 3}]}"};

Config documents_config(const std::string& pattern, int64_t separator = kSeparator) {
  Config c = rotary_config(parse_pattern(pattern, "test"));
  c.data.separator = separator;
  c.model.previous_token = false;  // it looks across borders, and is refused with a separator
  return c;
}

// With the separator's embedding as start vector, the first row of a document is that of a text
// alone.
struct Packed : SmallModel {
  explicit Packed(const Config& c)
      : SmallModel(c, DType::f64) {
    const auto find = [&](const std::string& name) {
      return *std::ranges::find_if(store.params(),
                                   [&](const ParamInfo& p) { return p.name == name; });
    };
    const int64_t width = c.model.width, table = find("token_embedding").offset;
    engine.upload(store.master().slice(table + kSeparator * width, {width}),
                  engine.host(store.master().slice(find("start").offset, {width})));
    Ctx ctx = engine.ctx();
    store.refresh_compute(ctx);
  }

  std::vector<double> logits(const std::vector<double>& tokens) {
    Ctx ctx = engine.ctx();
    return engine.host(model->logits(
        ctx, engine.tensor({1, static_cast<int64_t>(tokens.size())}, tokens, DType::i32)));
  }
};

const std::vector<std::vector<double>> kDocuments = {
    {1, 2, 6}, {0, 3, 5, 5, 2, 6}, {4, 1, 6}, {1, 2, 0, 3, 2, 1}};

std::vector<double> packed_tokens() {
  std::vector<double> all;
  for (const auto& document : kDocuments) all.insert(all.end(), document.begin(), document.end());
  return all;
}

TEST(Documents, LogitsAreThoseOfEachAlone) {
  for (const std::string& pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    Packed packed(documents_config(pattern)), alone(documents_config(pattern, -1));
    std::vector<double> expected;
    for (const auto& document : kDocuments) {
      const std::vector<double> logits = alone.logits(document);
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
    expect_near(packed.logits(packed_tokens()), expected, 1e-12, "logits");
    EXPECT_GT(relative_error(alone.logits(packed_tokens()), expected), 1e-4);
  }
}

TEST(Documents, TheSeparatorMayBeTokenZero) {
  Packed packed(documents_config("{kind: all}", 0)), whole(documents_config("{kind: all}", -1));
  for (Packed* model : {&packed, &whole}) {
    const std::vector<double> a = model->logits({1, 0, 2, 3}), b = model->logits({4, 0, 2, 3});
    const auto last = static_cast<std::ptrdiff_t>(a.size() / 4);  // of row 3
    EXPECT_EQ(std::equal(a.end() - last, a.end(), b.end() - last), model == &packed);
  }
}

// The gradients of the mean loss of 18 tokens, and of the documents' weighted by their lengths.
// Rows of the start vector are the separator's in the packed text: their sum counts.
TEST(Documents, GradientsAreTheSumOfEachAlone) {
  for (const std::string& pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    Packed packed(documents_config(pattern)), alone(documents_config(pattern, -1));
    packed.differentiate(packed.engine.tensor({1, 18}, packed_tokens(), DType::i32));
    std::vector<double> sum(static_cast<std::size_t>(alone.store.gradients().size()));
    for (const auto& document : kDocuments) {
      const auto n = static_cast<int64_t>(document.size());
      alone.differentiate(alone.engine.tensor({1, n}, document, DType::i32));
      const std::vector<double> part = alone.engine.host(alone.store.gradients());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i] * static_cast<double>(n) / 18;
    }
    std::vector<double> got = packed.engine.host(packed.store.gradients());
    for (std::vector<double>* all : {&sum, &got}) {
      const auto at = [&](const std::string& name) {
        return all->begin() + std::ranges::find_if(packed.store.params(), [&](const ParamInfo& p) {
                                return p.name == name;
                              })->offset;
      };
      const auto start = at("start"), row = at("token_embedding") + kSeparator * 16;
      for (int c = 0; c < 16; ++c) start[c] += std::exchange(row[c], 0);
    }
    expect_near(got, sum, 1e-12, "gradients");
  }
}

TEST(Documents, RecomputedGradientsHaveTheSameBits) {
  std::vector<std::vector<double>> gradients;
  for (const Recompute recompute : kEveryRecompute) {
    Config c = documents_config(kPatterns[4]);
    c.train.recompute = recompute;
    SmallModel small(c);
    small.differentiate(small.tokens(3, 18));
    gradients.push_back(small.engine.host(small.store.gradients()));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
}

void check_decoded(const std::string& device) {
  for (const std::string& pattern : kPatterns)
    for (const bool rotary : {false, true}) {
      SCOPED_TRACE(pattern);
      Config c = documents_config(pattern);
      if (!rotary) c.model.positions = PositionCode::learned;
      SmallModel small(c, DType::f32, device);
      for (const int64_t batch : {1, 3}) check_decoding(small, batch, 18);
    }
}

TEST(Documents, DecodingGivesTheLogitsOfTraining) { check_decoded("cpu"); }

TEST(CudaDocuments, DecodingGivesTheLogitsOfTraining) { check_decoded("cuda"); }

// Longer texts of 16-bit models: the forms that train. Against the CPU in f32 from the same rounded
// weights.
TEST(CudaDocuments, LossesAreThoseOfTheCpu) {
  for (const std::string& pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    Config c = documents_config(pattern);
    c.model.context = 300;
    c.model.position_axes = {300};
    c.model.width = 128;
    SmallModel cpu(c, DType::f32), gpu(c, DType::bf16, "cuda");
    const double want = cpu.loss(cpu.tokens(4, 300)), got = gpu.differentiate(gpu.tokens(4, 300));
    EXPECT_NEAR(got, want, 2e-2 * want);
    const std::vector<double> gradients = gpu.engine.host(gpu.store.gradients());
    gpu.differentiate(gpu.tokens(4, 300));
    EXPECT_EQ(gpu.engine.host(gpu.store.gradients()), gradients) << "another run, other bits";
    cpu.differentiate(cpu.tokens(4, 300));
    EXPECT_LT(relative_error(gradients, cpu.engine.host(cpu.store.gradients())), 5e-2);
  }
}
}  // namespace
}  // namespace weft
