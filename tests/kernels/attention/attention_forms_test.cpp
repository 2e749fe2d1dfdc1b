// SPDX-License-Identifier: MIT
// Which CUDA form runs what: chosen on the host, so that it is tested without a GPU.
#include "kernels/attention/select.h"

#include <gtest/gtest.h>

#include "kernels/view.h"
#include "tests/kernels/attention/attention_case.h"

namespace weft {
namespace {

using attention::choose_form;
using attention::parse_form;

std::string refusal(AttentionForm wanted, DType dtype, int edge, std::int64_t size) {
  try {
    choose_form(wanted, dtype, edge, size, size, false, 80);
  } catch (const Error& e) { return e.what(); }
  return "";
}

TEST(AttentionForms, AutomaticTakesTheFastestThatCovers) {
  EXPECT_EQ(choose_form(AttentionForm::automatic, DType::f32, kTile, 64, 64, false, 90),
            AttentionForm::simple);
  EXPECT_EQ(choose_form(AttentionForm::automatic, DType::bf16, kTile, 128, 8, false, 80),
            AttentionForm::general);
  EXPECT_EQ(choose_form(AttentionForm::automatic, DType::f16, kTile, 8, 136, false, 80),
            AttentionForm::simple);
  EXPECT_EQ(choose_form(AttentionForm::automatic, DType::f16, kSmallTile, 8, 256, true, 89),
            AttentionForm::general);
}

TEST(AttentionForms, TheTextNamesPassesAndDirections) {
  AttentionBackward g = attention_test::problem_of(300, 64, 64);
  AttentionForward f;
  f.q = g.q, f.k = g.k, f.v = g.v, f.y = g.y;
  f.maps.passes = g.maps.passes = 1;
  EXPECT_EQ(attention::forms_text(f, g, 80), "general");
  f.form = AttentionForm::simple;
  EXPECT_EQ(attention::forms_text(f, g, 80), "simple; backward general");
  g.maps.passes = 2;
  EXPECT_EQ(attention::forms_text(f, g, 80), "simple; backward general + general");
}

TEST(AttentionForms, AForcedFormRunsOrIsRefusedByName) {
  EXPECT_EQ(choose_form(AttentionForm::simple, DType::f16, kTile, 64, 64, true, 90), AttentionForm::simple);
  const std::string message = refusal(AttentionForm::general, DType::f32, kTile, 64);
  EXPECT_NE(message.find("'general'"), std::string::npos) << message;
  EXPECT_NE(message.find("f32"), std::string::npos) << message;
  EXPECT_NE(message.find("simple and automatic work"), std::string::npos) << message;
  EXPECT_NE(refusal(AttentionForm::hopper, DType::f16, kTile, 64).find("'hopper'"), std::string::npos);
}

TEST(AttentionForms, HopperIsForItsGpuItsTypesAndItsTiles) {
  const auto on_90 = [](DType dtype, int edge, std::int64_t size, bool segments) {
    return choose_form(AttentionForm::automatic, dtype, edge, size, size, segments, 90);
  };
#ifdef WEFT_SM90A
  EXPECT_EQ(on_90(DType::bf16, kTile, 64, false), AttentionForm::hopper);
  EXPECT_EQ(on_90(DType::f16, kTile, 128, false), AttentionForm::hopper);
  EXPECT_NE(refusal(AttentionForm::hopper, DType::f16, kTile, 64).find("9.0, got 8.0"), std::string::npos);
#else
  EXPECT_EQ(on_90(DType::bf16, kTile, 64, false), AttentionForm::general);
  EXPECT_NE(refusal(AttentionForm::hopper, DType::f16, kTile, 64).find("90a"), std::string::npos);
#endif
  EXPECT_EQ(on_90(DType::bf16, kTile, 64, true), AttentionForm::general);
  EXPECT_EQ(on_90(DType::bf16, kSmallTile, 64, false), AttentionForm::general);
  EXPECT_EQ(on_90(DType::f32, kTile, 64, false), AttentionForm::simple);
  EXPECT_EQ(on_90(DType::f16, kTile, 136, false), AttentionForm::simple);
  EXPECT_EQ(choose_form(AttentionForm::automatic, DType::bf16, kTile, 64, 64, false, 100),
            AttentionForm::general);
}

TEST(AttentionForms, BandsOfAShortReachAreSwept) {
  using attention::covers_band;
  const auto pass = [](std::int32_t stride, std::int32_t reach) {
    AttentionPass p;
    p.band = {stride, reach, 0};
    return p;
  };
  EXPECT_TRUE(covers_band(pass(1, 128), 1 << 20));
  EXPECT_FALSE(covers_band(pass(1, 129), 1 << 20));
  EXPECT_TRUE(covers_band(pass(128, 128), 128 * 128));
  EXPECT_FALSE(covers_band(pass(128, 129), 129 * 128));
  EXPECT_TRUE(covers_band(pass(8, 1000), 128 * 8));  // there are no more rows than 128
  EXPECT_FALSE(covers_band(AttentionPass{}, 128));
#ifdef WEFT_SM90A
  EXPECT_EQ(choose_form(AttentionForm::automatic, DType::bf16, kSmallTile, 64, 64, false, 90, true),
            AttentionForm::hopper);
#endif
  EXPECT_EQ(choose_form(AttentionForm::automatic, DType::bf16, kSmallTile, 64, 64, true, 90, true),
            AttentionForm::general);
}

TEST(AttentionForms, NamesAreRead) {
  for (const AttentionForm form :
       {AttentionForm::automatic, AttentionForm::simple, AttentionForm::general, AttentionForm::hopper})
    EXPECT_EQ(parse_form(name_of(form)), form);
  EXPECT_THROW(parse_form("fast"), Error);
}

}  // namespace
}  // namespace weft
